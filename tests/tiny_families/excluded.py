"""What transformers lists among its text decoders and the table leaves out, each with the reason."""

from __future__ import annotations

_REASONS: dict[str, str] = {
    "an encoder, whose tokens attend to later ones; its class generates only with is_decoder, for new training": (
        "bert bert-generation big_bird camembert data2vec-text electra ernie megatron-bert rembert roberta "
        "roberta-prelayernorm roc_bert roformer xlm xlm-roberta xlm-roberta-xl xmod"
    ),
    "the decoder of an encoder-decoder: it answers the encoder's input, not its own prompt": (
        "bart bigbird_pegasus blenderbot blenderbot-small florence2 marian mbart mvp pegasus pix2struct plbart "
        "pp_formulanet prophetnet t5gemma2 trocr udop vision-encoder-decoder"
    ),
    "it takes no text without a picture: its own forward fails": (
        "blip blip-2 idefics instructblip instructblipvideo kosmos-2"
    ),
    "a draft model, which starts from another model's states": "gemma4_assistant gemma4_unified_assistant",
    "it generates blocks of tokens by diffusion": "diffusion_gemma",
    "it controls a robot": "pi0",
    "it classifies pictures and generates no text": "shieldgemma2",
    "transformers lists it, but has no such model": "evolla",
    "it generates or transcribes sound": "moshi moss_transcribe_diarize musicgen musicgen_melody whisper",
}

EXCLUDED: dict[str, str] = {name: reason for reason, names in _REASONS.items() for name in names.split()}
