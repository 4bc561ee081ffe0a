// Drain no-op jobs with graphile-worker, as fast as its own guide for high throughput says: node graphile.mjs URL SCHEMA COUNT
// Prints the seconds from the start of the worker until every job is completed in the database.
import { makeWorkerUtils, run } from "graphile-worker";
import pg from "pg";

const [url, schema, text] = process.argv.slice(2);
const count = Number(text);
const quiet = { error: () => {}, warn: () => {}, info: () => {}, debug: () => {}, scope: () => quiet };
const preset = {
  worker: {
    connectionString: url,
    schema,
    concurrentJobs: 24,
    maxPoolSize: 10,
    pollInterval: 2000,
    localQueue: { size: 500 },
    completeJobBatchDelay: 0,
    failJobBatchDelay: 0,
  },
};

const utils = await makeWorkerUtils({ preset, logger: quiet });
await utils.migrate();
for (let from = 0; from < count; from += 1000) {
  const jobs = Array.from({ length: Math.min(1000, count - from) }, (_, n) => ({ identifier: "noop", payload: { n: from + n } }));
  await utils.addJobs(jobs);
}
await utils.release();

let left = count;
let allDone;
const finished = new Promise((resolve) => (allDone = resolve));
const begun = performance.now();
const runner = await run({
  preset,
  logger: quiet,
  noHandleSignals: true,
  taskList: {
    noop: async () => {
      if (--left === 0) allDone();
    },
  },
});
await finished;
await runner.stop(); // the last completions are written
const seconds = (performance.now() - begun) / 1000;

const client = new pg.Client({ connectionString: url });
await client.connect();
const { rows } = await client.query(`select count(*)::int as jobs from ${schema}._private_jobs`);
await client.query(`drop schema ${schema} cascade`);
await client.end();
console.log(JSON.stringify({ seconds, left: rows[0].jobs }));
process.exit(0);
