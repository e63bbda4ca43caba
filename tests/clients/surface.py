"""The other endpoints with a real engine behind them: surface.py BASE_URL CHAT_MODEL EMBEDDING_MODEL."""

import json
import sys

import openai

base_url, model, embedder = sys.argv[1:]
client = openai.OpenAI(base_url=base_url, api_key="none", max_retries=0, timeout=280)

models = [listed.id for listed in client.models.list()]
one = client.models.retrieve(model).id
completion = client.completions.create(model=model, prompt="The tide is", max_tokens=8, temperature=0)
response = client.responses.create(model=model, input="What is a tide?", max_output_tokens=8)
events = [
    event.type for event in client.responses.create(model=model, input="Hi", max_output_tokens=8, stream=True)
]
message = client.post(
    "/messages",
    body={"model": model, "max_tokens": 8, "messages": [{"role": "user", "content": "What is a tide?"}]},
    cast_to=object,
)
# Both encodings: the SDK asks for base64 by itself.
texts = ["the tide comes in", "the tide goes out", "a sonata for violin"]
as_base64 = client.embeddings.create(model=embedder, input=texts)
as_floats = client.embeddings.create(model=embedder, input=texts, encoding_format="float")
print(
    json.dumps(
        {
            "models": models,
            "model": one,
            "completion": completion.choices[0].text,
            "response": response.output_text,
            "response_events": events,
            "message": message,
            "embeddings": [len(entry.embedding) for entry in as_base64.data],
            "difference": max(
                abs(a - b)
                for one, other in zip(as_base64.data, as_floats.data)
                for a, b in zip(one.embedding, other.embedding)
            ),
            "embedding_tokens": as_floats.usage.prompt_tokens,
        }
    )
)
