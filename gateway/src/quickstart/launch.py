"""Serves one GGUF model with llama.cpp's HTTP server: launch.py MODEL PORT SLOTS CONTEXT ALIAS.

CONTEXT is in tokens per slot. The server answers on 127.0.0.1 only. It outlives whoever started it, so that a gateway
that comes back finds it again; SIGTERM and SIGINT end it with exit code 0.
"""

import os
import signal
import sys

# Blocked before the server's threads exist, so that each of them inherits it and sigwait below gets the signal.
ENDS = {signal.SIGTERM, signal.SIGINT}
signal.pthread_sigmask(signal.SIG_BLOCK, ENDS)
# A starter that died, or a terminal that was closed, is no reason to stop serving.
signal.signal(signal.SIGHUP, signal.SIG_IGN)
signal.signal(signal.SIGPIPE, signal.SIG_IGN)

import xllamacpp  # noqa: E402

model, port, slots, context, alias = sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), int(sys.argv[4]), sys.argv[5]
params = xllamacpp.CommonParams()
params.model.path = model
params.model_alias = {alias}
params.hostnames = ["127.0.0.1"]
params.port = port
params.n_parallel = slots
params.n_ctx = context * slots
# One thread a replica: two replicas share a small machine without stalling each other.
params.cpuparams.n_threads = params.cpuparams_batch.n_threads = 1
params.endpoint_metrics = params.endpoint_slots = True
params.cache_ram_mib = 256
# A small model may never come to an end by itself; a client that wants more says so with max_tokens.
params.n_predict = 512
server = xllamacpp.Server(params)
signal.sigwait(ENDS)
# At once: the server's destructor would wait for its streams.
os._exit(0)
