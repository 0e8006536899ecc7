# bash launch/quickstart.sh options: the config options, in runs/options. A controller learns to choose between gold and
# stairs.
if [ "$example" != options ]; then fail "unknown word '$example': write options"; fi
own_config=options:treasure plays=treasure home=runs/options
what_next() {
  cat <<END
Watch it play:
  python -m motif_jax.launch $config --stage=visualize
Each option alone, beside their controller:
  python -m motif_jax.launch $config --stage=evaluate,report --config.evaluate.baselines=random,#gold,#stairs
END
}
