// A chat streamed with keep-alive comments asked for: quiet.mjs BASE_URL. Prints what quiet.py prints.
import OpenAI from "openai";

const client = new OpenAI({
  baseURL: process.argv[2],
  apiKey: "none",
  maxRetries: 0,
  timeout: 120_000,
  defaultHeaders: { "x-tidegate-keepalive": "1" },
});
const parts = [];
try {
  const messages = [{ role: "user", content: "quiet" }];
  for await (const chunk of await client.chat.completions.create({ model: "chat", messages, stream: true })) {
    for (const choice of chunk.choices) parts.push(choice.delta.content ?? "");
  }
  console.log(JSON.stringify({ text: parts.join("") }));
} catch (error) {
  if (!(error instanceof OpenAI.APIError)) throw error;
  console.log(JSON.stringify({ error: "APIError", message: error.message }));
}
