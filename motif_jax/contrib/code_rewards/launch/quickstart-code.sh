# bash launch/quickstart.sh code: the config code_quickstart:doorkey, in runs/code. A reward is written as a program, and
# an agent learns from it; code:gold plays NetHack, in runs/code-gold.
case $example in
  code | code:doorkey) own_config=code_quickstart:doorkey plays="MiniGrid's DoorKey" home=runs/code ;;
  code:gold) own_config=code_quickstart:gold plays="for gold in NetHack" home=runs/code-gold ;;
  *) fail "unknown game '${example#code:}': write code, code:doorkey or code:gold" ;;
esac
what_next() {
  cat <<END
The program: $workdir/write_reward/best.reward; all that were tried: $workdir/write_reward/record.json
Watch it play:
  python -m motif_jax.launch $config --stage=visualize
A program of your own (docs/code-rewards.md):
  python -m motif_jax.launch $config-own --stage=train_policy,evaluate,report --config.policy.sources=code:MY.reward
With a language model that writes, in this process (a GGUF file or a directory) or on a server (docs/code-rewards.md):
  python -m motif_jax.launch $config-model --config.code_rewards.writer=model --config.annotate.model=MODEL.gguf
  python -m motif_jax.launch $config-server --config.code_rewards.writer=server \\
      --config.annotate.server.url=http://127.0.0.1:8000/v1 --config.annotate.model=NAME
END
}
