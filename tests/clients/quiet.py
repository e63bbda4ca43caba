"""A chat streamed with keep-alive comments asked for: quiet.py BASE_URL. Prints its text and its tokens, or the error."""

import json
import sys

import openai

client = openai.OpenAI(
    base_url=sys.argv[1], api_key="none", max_retries=0, timeout=120, default_headers={"x-tidegate-keepalive": "1"}
)
parts = []
try:
    messages = [{"role": "user", "content": "quiet"}]
    for chunk in client.chat.completions.create(model="chat", messages=messages, stream=True):
        parts.extend(choice.delta.content or "" for choice in chunk.choices)
    print(json.dumps({"text": "".join(parts)}))
except openai.APIError as error:
    print(json.dumps({"error": type(error).__name__, "message": error.message}))
