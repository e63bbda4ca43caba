"""Serves one GGUF model for embeddings with llama.cpp's HTTP server: embedder.py MODEL PORT. SIGTERM ends it."""

import os
import signal
import sys

ENDS = {signal.SIGTERM, signal.SIGINT}
signal.pthread_sigmask(signal.SIG_BLOCK, ENDS)

import xllamacpp  # noqa: E402

params = xllamacpp.CommonParams()
params.model.path = sys.argv[1]
params.model_alias = {"embedder"}
params.hostnames = ["127.0.0.1"]
params.port = int(sys.argv[2])
params.n_parallel = 2
params.n_ctx = 1024
params.cpuparams.n_threads = params.cpuparams_batch.n_threads = 1
params.embedding = True
params.pooling_type = xllamacpp.llama_pooling_type.LLAMA_POOLING_TYPE_MEAN
server = xllamacpp.Server(params)
signal.sigwait(ENDS)
os._exit(0)
