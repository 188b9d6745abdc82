"""What transformers lists among its text decoders and the table leaves out, each with the reason."""

from __future__ import annotations

_REASONS: dict[str, str] = {
    "an encoder, whose tokens see those behind them; its class writes only where is_decoder is set, to train it anew": (
        "bert bert-generation big_bird camembert data2vec-text electra ernie megatron-bert rembert roberta "
        "roberta-prelayernorm roc_bert roformer xlm xlm-roberta xlm-roberta-xl xmod"
    ),
    "the half of an encoder-decoder: it answers what the encoder has read, not what stands before it": (
        "bart bigbird_pegasus blenderbot blenderbot-small florence2 marian mbart mvp pegasus pix2struct plbart "
        "pp_formulanet prophetnet t5gemma2 trocr udop vision-encoder-decoder"
    ),
    "it takes no text without a picture: its own forward fails": (
        "blip blip-2 idefics instructblip instructblipvideo kosmos-2"
    ),
    "it drafts for another model, from whose states it begins": "gemma4_assistant gemma4_unified_assistant",
    "it writes a block of tokens at a time by diffusion": "diffusion_gemma",
    "it moves a robot": "pi0",
    "it says what a picture shows, by a class that writes no text": "shieldgemma2",
    "transformers lists it among models that it has not": "evolla",
    "it writes sound, or what it hears": "moshi moss_transcribe_diarize musicgen musicgen_melody whisper",
}

EXCLUDED: dict[str, str] = {name: reason for reason, names in _REASONS.items() for name in names.split()}
