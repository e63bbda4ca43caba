// The same chat whole and as a stream: stream.mjs BASE_URL MODEL. Prints what stream.py prints.
import OpenAI from "openai";

const [baseURL, model] = process.argv.slice(2);
const client = new OpenAI({ baseURL, apiKey: "none", maxRetries: 0, timeout: 280_000 });
const chat = {
  model,
  messages: [{ role: "user", content: "What is a tide? Answer in one sentence." }],
  max_tokens: 24,
  temperature: 0,
  seed: 7,
};

const whole = await client.chat.completions.create(chat);
const parts = [];
let usage = null;
let finish = null;
const options = { ...chat, stream: true, stream_options: { include_usage: true } };
for await (const chunk of await client.chat.completions.create(options)) {
  usage = chunk.usage ?? usage;
  for (const choice of chunk.choices) {
    parts.push(choice.delta.content ?? "");
    finish = choice.finish_reason ?? finish;
  }
}
console.log(
  JSON.stringify({
    whole: whole.choices[0].message.content,
    whole_tokens: [whole.usage.prompt_tokens, whole.usage.completion_tokens],
    streamed: parts.join(""),
    streamed_tokens: usage && [usage.prompt_tokens, usage.completion_tokens],
    pieces: parts.filter((part) => part).length,
    finish: [whole.choices[0].finish_reason, finish],
  }),
);
