"""Programs of others, where they are installed.

They are vLLM (``BLIS_VLLM_PYTHON``), GuideLLM (``BLIS_GUIDELLM``), and OpenAI's and Anthropic's clients
(``BLIS_CLIENTS_PYTHON``).
"""

from __future__ import annotations

import os
import subprocess
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final
from urllib.error import URLError
from urllib.request import urlopen

import pytest

from tests.live.observe.servers import free_port

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

VLLM: Final = os.environ.get("BLIS_VLLM_PYTHON", "")
"""The path of a Python that has vLLM; for its server, one that runs on this machine's CPU."""
GUIDELLM: Final = os.environ.get("BLIS_GUIDELLM", "")
"""The path of the program."""
CLIENTS: Final = os.environ.get("BLIS_CLIENTS_PYTHON", "")
"""The path of a Python that has ``openai`` and ``anthropic``."""
needs_clients = pytest.mark.skipif(not CLIENTS, reason="BLIS_CLIENTS_PYTHON names no Python with openai and anthropic")
needs_vllm = pytest.mark.skipif(not VLLM, reason="BLIS_VLLM_PYTHON names no Python with vLLM")
needs_guidellm = pytest.mark.skipif(not (GUIDELLM and VLLM), reason="BLIS_GUIDELLM or BLIS_VLLM_PYTHON is not set")

ENVIRONMENT: Final = {
    **os.environ,
    "VLLM_TARGET_DEVICE": "cpu",
    "VLLM_CPU_KVCACHE_SPACE": "1",
    "VLLM_CPU_OMP_THREADS_BIND": "nobind",
    "OMP_NUM_THREADS": "1",
    "VLLM_NO_USAGE_STATS": "1",
    "DO_NOT_TRACK": "1",
    "HF_HUB_OFFLINE": "1",
}
_MODEL: Final = """
import sys
from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from transformers import LlamaConfig, PreTrainedTokenizerFast
folder = sys.argv[1]
LlamaConfig(
    vocab_size=259, hidden_size=64, intermediate_size=128, num_hidden_layers=2, num_attention_heads=2,
    num_key_value_heads=2, head_dim=32, max_position_embeddings=4096, dtype="float32",
    architectures=["LlamaForCausalLM"],
).save_pretrained(folder)
letters = {letter: number for number, letter in enumerate(sorted(pre_tokenizers.ByteLevel.alphabet()))}
specials = {"<s>": 256, "</s>": 257, "<pad>": 258}
tokenizer = Tokenizer(models.BPE(vocab={**letters, **specials}, merges=[]))
tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
tokenizer.decoder = decoders.ByteLevel()
fast = PreTrainedTokenizerFast(tokenizer_object=tokenizer, bos_token="<s>", eos_token="</s>", pad_token="<pad>")
fast.chat_template = "{% for m in messages %}{{ m['role'] }}: {{ m['content'] }}\\n{% endfor %}"
fast.save_pretrained(folder)
"""


def tiny_model(folder: Path) -> Path:
    """A model of two small layers with a tokenizer of bytes; its weights are whatever vLLM makes up."""
    subprocess.run([VLLM, "-c", _MODEL, str(folder)], check=True, capture_output=True, env=ENVIRONMENT)
    return folder


@contextmanager
def vllm_server(folder: Path, *options: str) -> Iterator[tuple[str, Path]]:
    """A real vLLM on this machine's CPU: its address, and its log."""
    model, port, log = tiny_model(folder / "tiny"), free_port(), folder / "server.log"
    words = [VLLM, "-m", "vllm.entrypoints.openai.api_server", "--model", str(model), "--served-model-name", "tiny"]
    words += ["--load-format", "dummy", "--dtype", "float32", "--host", "127.0.0.1", "--port", str(port)]
    words += ["--max-model-len", "1024", "--max-num-seqs", "64", "--max-num-batched-tokens", "1024"]
    words += ["--block-size", "32", "--enforce-eager", "--num-gpu-blocks-override", "200"]
    words += ["--enable-logging-iteration-details", *options]
    with log.open("wb") as out:
        process = subprocess.Popen(words, stdout=out, stderr=out, env=ENVIRONMENT, start_new_session=True)
    try:
        for _ in range(600):
            assert process.poll() is None, log.read_text()[-2000:]
            try:
                with urlopen(f"http://127.0.0.1:{port}/health", timeout=1):
                    break
            except (URLError, OSError):
                time.sleep(0.5)
        yield f"http://127.0.0.1:{port}", log
    finally:
        os.killpg(process.pid, 15)
        process.wait(60)
