"""Motif on NetHack (arXiv 2310.00166), at the published size.

    python -m motif_jax.launch --config=configs/motif.py:score --workdir=runs/score

The argument is the task, because a task moves several values together: score, staircase, staircase_lvl3,
staircase_lvl4, staircase_continual, staircase_lvl3_continual, staircase_lvl4_continual, oracle, oracle_sober, or toy.
`:score,reference` reproduces the published system, defects included, where numbers depend on them.

Collecting 100,000 pairs takes about ten seconds on two cores, annotating them with the lexicon one. With a language
model, which --config.annotate.backend=vllm or server asks, annotation is a matter of minutes to hours. The reward of
100,000 pairs takes about half a minute, and agrees with the lexicon on 99 % of the validation pairs that have a
preference. Training the policy takes two billion steps, as published: a GPU and many cores, or a smaller
--config.policy.train_for_env_steps. docs/speed.md says how fast it is.
"""

from ml_collections import ConfigDict

from motif_jax.envs.nethack.tasks import get_task
from motif_jax.structs import UserError
from motif_jax.system.machine import usable_cores

SWITCHES = ("reference",)  # one of them may stand after the task; tests try all


def get_config(argument: str = "score") -> ConfigDict:
    """The whole experiment, for a task and optionally `reference`."""
    task, *switches = argument.split(",")
    if task != "toy" and ":" not in task:
        get_task(task)
    if len(switches) > 1 or not set(switches) <= set(SWITCHES):
        only = " or ".join(map(repr, SWITCHES))
        raise UserError(
            f"unknown switch {','.join(switches)!r} after the task {task!r}: there is only {only} (--config)"
        )
    reference = "reference" in switches

    config = ConfigDict()
    config.seed = 777
    config.stages = ("collect", "annotate", "train_reward", "train_policy", "evaluate", "report")  # without --stage
    config.seeds = ""  # "5": runs with seeds 0 to 4 in folders of the workdir; "3,7": with these; "": one, with `seed`
    config.seeds_at_once = 1  # how many of them run side by side, each on its part of the cores
    config.cpu_devices = 1  # JAX makes so many devices of a CPU, among which batches are cut: try one per core

    # ---- the game, in every stage
    config.env = ConfigDict()
    config.env.world = "nethack"  # toy, babyai, wordle, guessing, comments; module:Class, your own (docs/games.md)
    config.env.options = "{}"  # of worlds that are none of nethack, toy and babyai, as JSON; NetHack's are those below
    config.env.task = task
    config.env.screen = "terminal"  # the crop shows the terminal as published; "map" is 15 % faster and has no text
    config.env.max_episode_steps = 5000
    config.env.penalty_mode = "constant"  # or exp, square, linear, always: for steps without game time
    config.env.penalty_step = -0.01
    config.env.character = "mon-hum-neu-mal"  # neutral human male monk; "@": another one in each episode
    config.env.actions = "basic"  # the 23 of Motif; "extended": the 28 of ONI (docs/games.md)
    config.env.no_progress_steps = 0  # steps in a row without game time after which an episode is cut; 0: none
    config.env.reference_time_limit = reference  # the time limit is a true end, not a cut
    config.env.reference_sober = reference  # hallucinating and levitating counts as sober
    config.env.reference_extended = False  # the extended actions with the errors of ONI's release
    config.env.babyai = ConfigDict()  # the world babyai (docs/babyai.md)
    config.env.babyai.level = "GoToLocal"  # or MixedTrainLocal, or any other of BabyAI's, as BabyAI-BossLevel-v0
    config.env.babyai.language = "auto"  # that of the level: english, or french
    config.env.babyai.actions = "canonical"  # restricted, augmented, rotate, shift, french; or names: turn left,...
    config.env.babyai.rewording = "none"  # of prompts: synonyms, invented_words, ...; or key=chair,ball=table
    config.env.babyai.window = 3  # observations in a prompt
    config.env.babyai.prompt_bytes = 0  # room for a prompt; 0: enough for the window
    config.env.babyai.faithful_walls = False  # tell of walls also where things lie before them
    config.env.babyai.reference_families = False  # in training each game keeps to one family of missions
    config.env.babyai.reference_french = False  # as published: what is carried in English, missions all "aller à"

    # ---- the dataset of pairs
    config.collect = ConfigDict()
    config.collect.dataset = ""  # a directory in the published layout, to be used instead of playing
    config.collect.follow_links = False  # also arrays of it that are links to files elsewhere
    config.collect.collector = "random" if task == "toy" else "explorer:0.8,random:0.2"  # who plays, with shares
    config.collect.policies = ""  # trained ones that play instead: WORKDIR[@STEP, @last or @all][:SHARE],...
    config.collect.num_pairs = 100_000  # the paper used 500,000 and says 100,000 reproduce most results
    config.collect.transcripts = 0  # games that are played by writing, to be recorded as text instead; 0: pairs
    config.collect.branch_player = ""  # of transcripts: goes on from each moment of the collector's games; "": nobody
    config.collect.branches = 1  # continuations from each moment
    config.collect.segment_length = 1  # steps per moment
    config.collect.keep_empty = 1.0  # share of the moments without any message that is kept
    config.collect.save_screen = False  # also tty_chars and tty_colors, 7.7 kB per pair and step
    config.collect.save_glyphs = False  # also the map of glyphs, 6.6 kB per pair and step, for rewards that read it
    config.collect.num_workers = usable_cores()  # 0: play in this process, for debugging
    config.collect.games_per_worker = 4
    config.collect.rollout_length = 128  # steps that a worker hands over at a time
    config.collect.commit_every_s = 20.0  # what a kill can cost at most
    config.collect.hang_timeout_s = 10.0  # a worker without a sign of life is replaced after so long

    # ---- the preferences
    config.annotate = ConfigDict()
    config.annotate.backend = "lexicon"  # rules; judge: rules over HTTP; vllm, server: a model; score, return, random
    config.annotate.model = ""  # vllm: a directory or a name; server: the name of the model there
    config.annotate.mode = "reason"  # as published: analysis, then a verdict; "score": how probable is each verdict?
    config.annotate.goal = "defaultgoal"  # zeroknowledge, combat, gold, stairs, or a sentence of your own
    config.annotate.prompt = "default"  # or "reworded"
    config.annotate.prompt_file = ""  # your own; motif_jax/envs/nethack/texts/default.toml is one to start from
    config.annotate.lexicon = ""  # lexicon: your own rules, a TOML file; "": the game's, motif_jax/envs/nethack/texts
    config.annotate.system_role = True  # False for models whose chat template has no system role
    config.annotate.captions = "msg"  # messages; "msg_minbl": with depth, gold, hit points, level and hunger
    config.annotate.both_orders = 0.0 if reference else 0.05  # reason: share of the questions asked both ways round
    config.annotate.tie_margin = 0.1  # no preference where P(second is better) is this close to one half
    config.annotate.custom_name = ""  # of the annotation; by default made of model, captions, goal and prompt
    config.annotate.compare_with = ""  # other annotations of the dataset, to see how far they agree: name,name
    config.annotate.max_pairs = 0  # annotate only the first so many pairs, as a trial; 0: all
    config.annotate.num_shards = 1  # how many jobs share the questions
    config.annotate.shard = 0  # which of them this is
    config.annotate.merge = "auto"  # "partial": ask nothing, merge what there is
    config.annotate.ignore_existing = False  # True: make the annotation anew; with cache_dir="", ask anew, too
    config.annotate.cache_dir = "runs/answers"  # answers of language models, shared by all experiments; "": none
    config.annotate.batch_size = 2048  # answers written down at a time, and questions per call of vLLM
    config.annotate.sampling = ConfigDict()  # mode reason
    config.annotate.sampling.temperature = 0.1
    config.annotate.sampling.top_p = 0.95
    config.annotate.sampling.top_k = 50  # vllm only; -1: all
    config.annotate.sampling.max_tokens = 4096 if reference else 1024
    config.annotate.vllm = ConfigDict()
    config.annotate.vllm.tensor_parallel = 1  # GPUs that hold one copy of the model
    config.annotate.vllm.dtype = "auto"  # half, float16, bfloat16, float, float32
    config.annotate.vllm.quantization = ""  # "fp8" halves the memory on recent GPUs
    config.annotate.vllm.max_model_len = 4096  # tokens of prompt and answer; 0: the model's own limit
    config.annotate.vllm.gpu_memory_utilization = 0.92
    config.annotate.vllm.extra = "{}"  # more arguments of vllm.LLM, as JSON
    config.annotate.server = ConfigDict()
    config.annotate.server.url = "http://127.0.0.1:8000/v1"
    config.annotate.server.key_variable = "MOTIF_JAX_API_KEY"  # the environment's, with the key, if one is needed
    config.annotate.server.in_flight = 64  # questions at a time
    config.annotate.server.timeout_s = 300.0  # for one reply
    config.annotate.server.patience_s = 600.0  # how long to wait for a server that is gone, and may be restarted
    config.annotate.server.start_s = 30.0  # the same at the start of the job
    config.annotate.server.prefill = False  # mode score: put "(" in the model's mouth; vLLM's server can, others cannot
    config.annotate.server.extra = "{}"  # more fields of the request, as JSON; null takes one away
    config.annotate.judge = ConfigDict()  # a server of its own process, which answers by the rules of the lexicon
    config.annotate.judge.delay_s = 0.05  # that it takes for a question, as a language model would
    config.annotate.judge.at_a_time = 8  # questions that it answers side by side

    # ---- the reward
    config.reward = ConfigDict()
    config.reward.annotators = ""  # annotations to learn from: name, or name:0.7,other:0.3; "": the one made above
    config.reward.labels = "hard"  # "soft": the annotator's own probabilities, where it gave any
    config.reward.message = "lt_cnn"  # lt_cnn_small, none
    config.reward.blstats = False  # also read the bottom line
    config.reward.crop = False  # also the map around the hero
    config.reward.glyphs = False  # also the whole map
    config.reward.learning_rate = 1e-5 if reference else 1e-4  # 1e-5 wants the paper's 500,000 pairs and more epochs
    config.reward.batch_size = 1024
    config.reward.num_epochs = 10
    config.reward.validation_share = 0.2
    config.reward.import_from = ""  # a checkpoint_N.pth of the published system, to be used instead of training
    config.reward.early_stop = 0  # stop after so many epochs without a lower validation loss; 0: never
    config.reward.reference_quantiles = reference  # quantiles with two decimals

    # ---- recorded conversations, and language models that learn from them (--stage=train_language)
    config.transcripts = ConfigDict()
    config.transcripts.path = ""  # a directory of transcripts; "": transcripts/ of this workdir
    config.transcripts.import_from = ""  # files of others, with commas, that transcripts/ of this workdir is made of
    config.transcripts.import_format = "lmrl"  # LMRL-Gym; lmrl_wordle, tweets, visdial, reddit; manual: of BabyAI
    config.transcripts.template = "words"  # marks: <a> </a> <s> </s>, as in ILQL; lines: line ends; none
    config.language = ConfigDict()
    config.language.model = ""  # a directory as of the Hugging Face Hub; "": a new model
    config.language.tokeniser = "words"  # of a new model, made of the transcripts; or letters
    config.language.family = "gpt2"  # of a new model; or llama
    config.language.width = 96
    config.language.layers = 2
    config.language.heads = 4
    config.language.dtype = "float32"  # what products are computed in; bfloat16 is faster on GPUs
    config.train_language = ConfigDict()
    config.train_language.recipe = "bc"  # cloning of all episodes; filtered_bc: of those with the best returns
    config.train_language.best_share = 0.2  # of filtered_bc
    config.train_language.batch_size = 64  # rows of tokens, of all hosts together
    config.train_language.num_parts = 1  # of a batch that are computed one after another, which takes less memory
    config.train_language.chunk = 0  # tokens whose logits are in memory at a time, for large vocabularies; 0: all
    config.train_language.max_length = 256  # tokens of a row; longer episodes are cut
    config.train_language.packed = True  # several episodes to a row; False: one, beside others of about its length
    config.train_language.validation_share = 0.05  # of the episodes
    config.train_language.mean_over_all_tokens = False  # True: the loss is a mean over all tokens, not the agent's
    config.train_language.learning_rate = 1e-3
    config.train_language.learning_rate_end = 0.1  # share that is left at the end of all epochs, as a cosine
    config.train_language.warmup_steps = 50
    config.train_language.weight_decay = 0.0
    config.train_language.adam_b1 = 0.9
    config.train_language.adam_b2 = 0.999
    config.train_language.adam_eps = 1e-8
    config.train_language.max_gradient_norm = 1.0  # 0: gradients are not clipped
    config.train_language.num_epochs = 1
    config.train_language.log_every = 50  # updates per row of metrics
    config.train_language.evaluate_every = 0  # updates; 0: before the first epoch and after each
    config.train_language.save_every_s = 300.0  # what a kill can cost at most
    config.train_language.keep_checkpoints = 2  # beside the best

    # ---- what texts are worth, learnt from the same conversations (--stage=train_values, docs/ilql.md)
    config.train_values = ConfigDict()
    config.train_values.recipe = "ilql"  # the algorithm: docs/ilql.md has the table
    config.train_values.policy = ""  # a directory with a language model; "": that of train_language
    config.train_values.start = "policy"  # the values begin as the policy; new_trunk: from nothing; new: both do
    config.train_values.best_share = 0.2  # of filtered_bc
    config.train_values.discount = 0.99
    config.train_values.expectile = 0.7  # of V; 0.5: the mean
    config.train_values.double_q = True  # two Q, of which the smaller counts
    config.train_values.polyak = 0.005  # how far targets go to the values at every update
    config.train_values.hard_update_every = 0  # updates after which targets become the values instead; 0: never
    config.train_values.v_weight = 1.0  # of the losses
    config.train_values.q_weight = 1.0
    config.train_values.conservative_weight = 0.01  # of CQL's term
    config.train_values.conservative_temperature = 1.0
    config.train_values.margin_weight = 0.0
    config.train_values.margin = 0.0
    config.train_values.policy_weight = 1.0  # of cloning, for recipes that learn the policy
    config.train_values.advantage_beta = 4.0  # of AWAC, while learning
    config.train_values.advantage_weight = 20.0  # at most
    config.train_values.advantage_sign = False  # only the sign of the advantage counts
    config.train_values.value_min = float("-inf")  # of the targets' Q
    config.train_values.value_max = float("inf")
    config.train_values.reward_scale = 1.0  # rewards are divided by it
    config.train_values.mean_over_all_tokens = False  # cloning's loss is a mean over all tokens, not the agent's
    config.train_values.replies = 4  # that the recipe chai samples in place of each text of the agent
    config.train_values.batch_size = 64  # rows of tokens, of all hosts together
    config.train_values.num_parts = 1  # of a batch that are computed one after another, which takes less memory
    config.train_values.chunk = 0  # tokens whose Q is in memory at a time, for large vocabularies; 0: all
    config.train_values.max_length = 256  # tokens of a row; longer episodes are cut
    config.train_values.packed = True  # several episodes to a row; False: one, beside others of about its length
    config.train_values.validation_share = 0.05  # of the episodes
    config.train_values.learning_rate = 1e-3
    config.train_values.learning_rate_end = 0.1  # share that is left at the end of all epochs, as a cosine
    config.train_values.warmup_steps = 50
    config.train_values.weight_decay = 0.0
    config.train_values.adam_b1 = 0.9
    config.train_values.adam_b2 = 0.999
    config.train_values.adam_eps = 1e-8
    config.train_values.max_gradient_norm = 1.0  # 0: gradients are not clipped
    config.train_values.games = 0  # played at each evaluation; checkpoints are then chosen by return; 0: the last one
    config.train_values.games_beta = 4.0  # the factor of Q - V in them
    config.train_values.num_epochs = 1
    config.train_values.log_every = 50  # updates per row of metrics
    config.train_values.evaluate_every = 0  # updates; 0: before the first epoch and after each
    config.train_values.save_every_s = 300.0  # what a kill can cost at most
    config.train_values.keep_checkpoints = 2  # beside the best

    # ---- how values change what is written, in evaluation
    config.decoding = ConfigDict()
    config.decoding.kinds = "sample"  # also greedy, beam, rerank, with commas; each is evaluated
    config.decoding.betas = "0,1,2,4,8,16"  # factors of Q - V, which is added to the logits; 0: the policy as it is
    config.decoding.clip = float("inf")  # what is added is at most so much; ILQL's code has 0 for Wordle
    config.decoding.include_logits = True  # False: beta (Q - V) alone decides, and not the policy's logits
    config.decoding.temperature = 1.0
    config.decoding.top_k = 0  # only the most probable tokens; 0: all
    config.decoding.top_p = 1.0  # only the most probable tokens that have this probability together; 1: all
    config.decoding.beams = 4  # of the kind beam
    config.decoding.candidates = 8  # of the kind rerank, of which the best one is written
    config.decoding.rerank_values = 1.0  # what rerank multiplies a candidate's value with, or the sum of Q - V
    config.decoding.rerank_log_prob = 0.0  # and its log-probability
    config.decoding.wanted_return = 0.0  # on which the recipe decision_transformer is conditioned
    config.decoding.max_tokens = 64  # of a text, and of a reply that chai learns from
    config.decoding.batch_size = 64  # conversations that are computed together

    # ---- the policy
    goal_task = task != "score"
    config.policy = ConfigDict()
    config.policy.network = "reference"  # as published; "small": for CPUs; general, film: other games; language, drrn
    config.policy.dtype = "float32"  # what products are computed in; "bfloat16" is faster on GPUs
    config.policy.algorithm = "appo"  # V-trace, clipped surrogate; "impala": V-trace policy gradient; ppo; q_learning
    config.policy.init_from = ""  # begin with the parameters of another policy: a workdir, or its checkpoints
    config.policy.language = ConfigDict()  # the network language: a language model is the policy (docs/glam.md)
    config.policy.language.model = ""  # a directory, as of the Hugging Face Hub; trained: train_language's; "": new
    config.policy.language.weights = "pretrained"  # those of the model; embeddings: these alone; random: none
    config.policy.language.family = "llama"  # of a new model; or gpt2, t5
    config.policy.language.width = 64
    config.policy.language.layers = 2
    config.policy.language.heads = 4
    config.policy.language.head = "score"  # of the names of actions, behind the prompt; action: a layer per action
    config.policy.language.formula = "sum"  # of the log-probabilities of a name's tokens; mean; raw_logits, product
    config.policy.language.hidden = 64  # units of the two hidden layers of the value, and of the head "action"
    config.policy.language.reference_heads = False  # as published: with sigmoids, and not zero at the start
    config.policy.language.lora_rank = 0  # train additions of this rank instead of all parameters; 0: all
    config.policy.language.lora_alpha = 16.0  # they are multiplied by alpha / rank
    config.policy.language.lora_names = "q,v"  # matrices that have one: q, k, v, o, up, down, gate; cross.q
    config.policy.language.max_tokens = 512  # of a prompt; a longer one is an error
    config.policy.language.chunk = 0  # prompts that the learner reads at a time, which takes less memory; 0: all
    config.policy.language.remat = False  # compute hidden states again for gradients: less memory, more time
    config.policy.drrn = ConfigDict()  # the network drrn, with q_learning: Q of a prompt and of an action's name
    config.policy.drrn.width = 128  # of the words' vectors, of what is remembered of texts, and of the hidden layer
    config.policy.drrn.max_tokens = 512  # of a prompt; a longer one is an error
    # the agent's reward
    config.policy.sources = "learnt"  # and the game: learnt,online:0.4,count:0.05,rnd:0.1,my_module:My:0.2; "": nothing
    config.policy.extrinsic_coefficient = 10.0 if goal_task else 0.1  # 0: the learnt reward alone
    config.policy.intrinsic_coefficient = 0.1  # 0: the game's reward alone, and no reward directory is needed
    config.policy.reward_dir = ""  # workdir or checkpoints of the learnt reward; "": of this workdir
    config.policy.reward_checkpoint = "last"  # "best", or the number of an epoch
    config.policy.reward_scale = 0.1  # of the game's reward, before it is clipped
    config.policy.reward_clip = 10.0
    config.policy.threshold_quantile = 0.5  # normalised learnt rewards up to this quantile are worth 0; -1: none
    config.policy.count_exponent = 3.0  # the n-th time in an episode a message is worth 1 / n^3
    config.policy.reference_alignment = reference  # reward each message one step late, and never an episode's last
    config.policy.count = ConfigDict()  # source count: the n-th time in an episode is worth 1 / n^exponent
    config.policy.count.of = "event_message"  # or another observation, such as position, event_blstats, crop
    config.policy.count.exponent = 0.5
    config.policy.rnd = ConfigDict()  # source rnd: random network distillation, what was not seen yet is worth much
    config.policy.rnd.learning_rate = 1e-4  # of its predictor, which takes one step per update of the policy
    config.policy.rnd.hidden = 128  # units of its hidden layers
    config.policy.rnd.outputs = 64  # numbers to predict
    config.policy.online = ConfigDict()  # source online: learnt during training, from the judge of `annotate`
    config.policy.online.kind = "retrieval"  # labels looked up; classification, ranking: networks; words: no judge
    config.policy.online.goals = "defaultgoal@0"  # a schedule, such as "defaultgoal@0,gold@2000000", by steps
    config.policy.online.threshold = 0.5  # probabilities of "helpful" above this are worth 1; others 0
    config.policy.online.floor = -0.5  # ranking, words: scores up to this are worth 0
    config.policy.online.normalise = not reference  # ranking: scores by their running mean and variance; False: raw
    config.policy.online.init_from = ""  # a workdir of a learnt reward, whose opinion stands until the judge has one
    config.policy.online.vectors = ""  # words: a file of word vectors in the text format (.vec)
    config.policy.online.order = "recency"  # what is asked first: last seen; "count": most often; "uncertain"
    config.policy.online.labels_per_1000_steps = 0.0  # budget of questions; 0: as many as the judge can answer
    config.policy.online.queue = 2000  # questions that wait, at most; the least urgent wait until they are seen again
    config.policy.online.attempts = 3  # a question whose answers cannot be read is given up after so many
    config.policy.online.patience_s = 30.0  # after so long without an answer the judge counts as down
    config.policy.online.when_down = "go_on"  # train without new labels until it is back; or "stop"
    config.policy.online.capacity = 1_000_000  # distinct captions that are stored, at most; 0.6 kB each
    config.policy.online.message = "lt_cnn"  # encoder of the networks; lt_cnn_small
    config.policy.online.learning_rate = 1e-4
    config.policy.online.batch_size = 256  # captions or pairs per lesson
    config.policy.online.lessons_early = 32  # whenever labels came, while there are few
    config.policy.online.lessons_late = 1  # per update of the policy, when there are many
    config.policy.online.switch_at = 25_000  # labels from which on there are many
    config.policy.online.pairs_per_update = 10  # ranking
    config.policy.online.sample = "count"  # ranking: captions as often as they were seen; or "distinct"
    # who plays
    config.policy.num_workers = usable_cores()  # 0: play in this process, for debugging
    config.policy.games_per_worker = 64
    config.policy.groups = 2  # per worker: one plays while the other waits for actions
    config.policy.rollout_length = 32
    config.policy.warmup_steps = 1000  # random actions that a game begins with, at most, so that not all begin together
    config.policy.hang_timeout_s = 30.0  # a worker without a sign of life is replaced after so long
    config.policy.wait_for_learner = False  # True: games wait for a slower learner, so that samples are newer
    config.policy.synchronous = False  # True, with at most one worker: the same run twice, to the bit
    # how it learns
    config.policy.batch_size = 4096  # steps per update, of all hosts together
    config.policy.num_epochs = 1
    config.policy.num_minibatches = 1
    config.policy.discount = 0.99
    config.policy.learning_rate = 1e-4
    config.policy.anneal_learning_rate_to = 1.0  # share that is left after train_for_env_steps, in a straight line
    config.policy.adam_eps = 1e-6
    config.policy.max_gradient_norm = 4.0
    config.policy.clip_ratio = 0.1  # of APPO and PPO
    config.policy.clip_value = 0.0 if goal_task and not reference else 1.0  # 0: none; goals give 50, far from any value
    config.policy.value_coefficient = 0.5
    config.policy.exploration = "entropy"  # or "symmetric_kl", to the uniform policy
    config.policy.exploration_coefficient = 0.003
    config.policy.anneal_exploration_to = 1.0  # likewise
    config.policy.clip_rho = 1.0  # of V-trace
    config.policy.clip_c = 1.0
    config.policy.gae_lambda = 0.95  # of PPO: how far rewards count for the actions before them
    config.policy.bootstrap = "inferred" if reference else "explicit"  # inferred loses every 32nd reward; never: GLAM's
    config.policy.normalise_advantages = True
    config.policy.normalise_over_all = reference  # with stale samples in the statistics
    config.policy.max_policy_lag = 10_000  # samples of policies older than so many updates teach nothing
    config.policy.replay = ConfigDict()  # q_learning: a buffer of steps, from which all minibatches are drawn
    config.policy.replay.capacity = 100_000  # steps; each takes over 2 bytes per token of drrn.max_tokens
    config.policy.replay.minibatch_size = 64  # steps; there are num_epochs * num_minibatches of them per update
    config.policy.replay.rewarded_share = 0.0  # of a minibatch, drawn from steps with a reward above zero
    config.policy.num_devices = 0  # 0: all
    config.policy.fsdp = 1  # devices of a host among which parameters, and the batch, are cut; for large networks
    config.policy.tensor = 1  # devices of a host that compute each layer together, from the same part of the batch
    # how long, and what is kept
    config.policy.train_for_env_steps = 2_000_000_000
    config.policy.train_for_seconds = 0.0  # after the first update, as compiling does not count; 0: no limit
    config.policy.save_every_steps = 10_000_000
    config.policy.save_every_s = 600.0  # what a kill can cost at most
    config.policy.keep_checkpoints = 5
    config.policy.milestone_every_steps = 200_000_000  # checkpoints that stay for ever; 0: none
    config.policy.log_every_s = 10.0
    config.policy.probe_every = 1  # updates from one row of probes.jsonl to the next, of networks that read prompts
    config.policy.tensorboard = True
    config.policy.wandb = ""  # name of a project of Weights & Biases, which then must be installed

    # ---- how well it plays
    config.evaluate = ConfigDict()
    config.evaluate.policy = ""  # of this workdir; WORKDIR[@STEP] of another; or "random", "explorer"
    config.evaluate.beside = "random"  # others in the same games, with commas: players, WORKDIR, @STEP; "": none
    config.evaluate.protocol = "task"  # the games above; "challenge": the NetHack Challenge's, with all characters
    config.evaluate.variations = ""  # other games too, of babyai: rewording=synonyms;level=GoToFrench+actions=french
    config.evaluate.episodes = 100  # the first so many of games that are never trained on, to their end
    config.evaluate.replays = "best,worst,liked"  # episodes kept; also longest, toughest, or numbers; "": none
    config.evaluate.greedy = False  # always the most probable action; often worse in games of chance
    config.evaluate.num_workers = usable_cores()  # 0: play in this process, for debugging
    config.evaluate.games_per_worker = 16
    config.evaluate.hang_timeout_s = 30.0  # a worker without a sign of life is replaced after so long

    # ---- an episode to look at
    config.visualize = ConfigDict()
    config.visualize.policy = ""  # of this workdir; WORKDIR[@STEP] of another; or "random", "explorer"
    config.visualize.episode = "best"  # of those evaluated: best, worst, liked, longest, toughest; or a number
    config.visualize.speed = 10.0  # steps per second
    config.visualize.export = ""  # a .cast, .gif or .mp4 to be written, instead of playing it in the terminal
    config.visualize.replay = ""  # a replay, one of evaluate/*/replays/*.npz, instead of policy and episode

    # ---- a release of policy and reward, for others
    config.export = ConfigDict()
    config.export.to = ""  # the directory to be made; "": export in the workdir
    config.export.licence = ""  # as the Hugging Face Hub spells it, such as apache-2.0; "": not stated
    config.export.about = ""  # sentences of your own for the card

    # ---- one page about all of it
    config.report = ConfigDict()
    config.report.runs = ""  # other workdirs to compare this one with: runs/a,runs/b
    config.report.replays = 5  # episodes that the page can play, at most

    # ---- a trace of the device's work, for XProf, TensorBoard or Perfetto
    config.profile = ConfigDict()
    config.profile.start_step = 10  # update to begin with
    config.profile.num_steps = 0  # updates to trace; 0: none

    # ---- many hosts, each running this same command with --stage=train_policy
    config.distributed = ConfigDict()
    config.distributed.coordinator = "auto"  # host:port of process 0; "auto": SLURM's tasks if there are several
    config.distributed.num_processes = 1
    config.distributed.process_id = 0

    # ---- measuring this machine
    config.benchmark = ConfigDict()
    config.benchmark.parts = ("env", "annotation", "reward", "policy", "pipeline")
    config.benchmark.networks = ("reference", "small")  # of the policy
    config.benchmark.pairs = (10_000, 50_000, 200_000)  # sizes of the datasets
    config.benchmark.seconds = 2.0  # per measurement
    config.benchmark.repeats = 3  # of which the median is reported
    config.benchmark.train_seconds = 180.0  # of the part train, which is for GPUs: see gpu.py
    config.benchmark.limit_s = 0.0  # begin no part that would end later, and train for less; 0: no limit
    return config
