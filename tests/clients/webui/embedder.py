"""The embedding model that Open WebUI loads for files, where the hub cannot be reached.

    python embedder.py CACHE

Its default is `sentence-transformers/all-MiniLM-L6-v2`, from the cache of the hub. This writes a model of that name into CACHE: one layer with
random weights, which finds the one passage of a short file as well as any other does. Needs `sentence-transformers` in this Python.
"""

import pathlib
import string
import sys
import tempfile

NAME, REVISION = "models--sentence-transformers--all-MiniLM-L6-v2", "0" * 40
SPECIAL = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
WIDTH = 32


def write(cache):
    """Writes the model, unless it is there. The reference comes last, and makes it complete."""
    place = pathlib.Path(cache) / NAME
    reference = place / "refs" / "main"
    if reference.exists():
        return
    from sentence_transformers import SentenceTransformer
    from sentence_transformers.sentence_transformer.modules import Pooling, Transformer
    from transformers import BertConfig, BertModel, BertTokenizer

    letters = string.ascii_lowercase + string.digits + string.punctuation
    with tempfile.TemporaryDirectory() as folder:
        words = pathlib.Path(folder) / "vocab.txt"
        words.write_text("\n".join([*SPECIAL, *letters, *(f"##{letter}" for letter in letters)]), encoding="utf-8")
        tokens = BertTokenizer(str(words))
        tokens.save_pretrained(folder)
        shape = {"hidden_size": WIDTH, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": WIDTH}
        BertModel(BertConfig(vocab_size=len(tokens), **shape)).save_pretrained(folder)
        SentenceTransformer(modules=[Transformer(folder), Pooling(WIDTH)]).save(str(place / "snapshots" / REVISION))
    reference.parent.mkdir(parents=True)
    reference.write_text(REVISION)


if __name__ == "__main__":
    write(sys.argv[1])
