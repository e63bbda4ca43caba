"""A chat over TLS, whole and as a stream: secure.py BASE_URL ISSUER.

Prints both texts, and the error of a client that trusts only the machine's own issuers.
"""

import json
import ssl
import sys

import openai

url, issuer = sys.argv[1:3]
trust = ssl.create_default_context(cafile=issuer)
client = openai.OpenAI(
    base_url=url, api_key="none", max_retries=0, timeout=60, http_client=openai.DefaultHttpxClient(verify=trust)
)
ask = {"model": "chat", "messages": [{"role": "user", "content": "hi"}]}
whole = client.chat.completions.create(**ask).choices[0].message.content
pieces = client.chat.completions.create(**ask, stream=True)
streamed = "".join(piece.choices[0].delta.content or "" for piece in pieces if piece.choices)
try:
    openai.OpenAI(base_url=url, api_key="none", max_retries=0, timeout=60).chat.completions.create(**ask)
    stranger = None
except openai.OpenAIError as error:
    stranger = type(error).__name__
print(json.dumps({"whole": whole, "streamed": streamed, "stranger": stranger}))
