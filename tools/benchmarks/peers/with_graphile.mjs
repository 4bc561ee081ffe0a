// graphile-worker, as fast as its own guide for high throughput says: node with_graphile.mjs WHAT URL COUNT
import { makeWorkerUtils, run } from "graphile-worker";
import pg from "pg";
import { CALLERS, Tally, answer, inBatches, seconds, secondsAtOnce, storedAtOnce } from "./helping.mjs";

const [what, url, text] = process.argv.slice(2);
const count = Number(text);
const quiet = { error: () => {}, warn: () => {}, info: () => {}, debug: () => {}, scope: () => quiet };
const preset = {
  worker: {
    connectionString: url,
    concurrentJobs: 24,
    maxPoolSize: what === "enqueue" ? CALLERS : 10,
    pollInterval: 2000,
    localQueue: { size: 500 },
    completeJobBatchDelay: 0,
    failJobBatchDelay: 0,
  },
};
const client = new pg.Client({ connectionString: url });
const jobs = async () => (await client.query("select count(*)::int as jobs from graphile_worker._private_jobs")).rows[0].jobs;

async function enqueue(utils) {
  const took = await secondsAtOnce(count, (number) => utils.addJob("noop", { number }));
  answer({ seconds: took, violations: storedAtOnce(await jobs(), count) });
}

async function drain(utils) {
  await inBatches(count, (several) => utils.addJobs(several.map((number) => ({ identifier: "noop", payload: { number } }))));
  await client.query("vacuum analyze");
  const tally = new Tally(count);
  const taskList = { noop: async ({ number }) => tally.count(number) };
  const took = await seconds(async () => {
    const runner = await run({ preset, logger: quiet, noHandleSignals: true, taskList });
    await tally.all;
    await runner.stop(); // the last completions are written
  });
  answer({ seconds: took, violations: tally.violations(await jobs()) });
}

const utils = await makeWorkerUtils({ preset, logger: quiet });
await utils.migrate();
await client.connect();
await { enqueue, drain }[what](utils);
process.exit(0);
