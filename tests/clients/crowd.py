"""One chat alone, then many at once: crowd.py BASE_URL MODEL FIRST COUNT MAX_TOKENS RETRIES.

FIRST is how many chats go one by one before the COUNT that go together. Prints a list of what came of each: status,
replica, how often the SDK tried again; or the error.
"""

import asyncio
import json
import sys

import openai

base_url, model = sys.argv[1:3]
first, count, max_tokens, retries = map(int, sys.argv[3:])


async def main():
    async with openai.AsyncOpenAI(base_url=base_url, api_key="none", max_retries=retries, timeout=280) as client:

        async def chat(number):
            messages = [{"role": "user", "content": f"Say something about the number {number}."}]
            try:
                raw = await client.chat.completions.with_raw_response.create(
                    model=model, messages=messages, max_tokens=max_tokens
                )
            except openai.OpenAIError as error:
                return {"error": f"{type(error).__name__}: {error}"}
            raw.parse()
            return {
                "status": raw.status_code,
                "replica": raw.headers.get("x-tidegate-replica"),
                "retries": raw.retries_taken,
            }

        results = [await chat(number) for number in range(first)]
        results += await asyncio.gather(*(chat(number) for number in range(first, first + count)))
        print(json.dumps(results))


asyncio.run(main())
