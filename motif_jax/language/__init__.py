"""Language models in Flax NNX: decoders (GPT-2, Llama, Mistral, Qwen) and encoder-decoders (T5, Flan-T5).

In: token ids, and directories in the Hugging Face layout. Out: hidden states, logits, log-probabilities of choices,
generated tokens, and such directories. It owns the architectures, their parameters' names, and nothing about games.
"""
