// pg-boss with batches and its burst mode: node with_pgboss.mjs WHAT URL COUNT
import { PgBoss } from "pg-boss";
import { CALLERS, Tally, answer, inBatches, seconds, secondsAtOnce, stored, storedAtOnce } from "./helping.mjs";

const [what, url, text] = process.argv.slice(2);
const count = Number(text);
const QUEUE = "noop";
const boss = new PgBoss({ connectionString: url, max: what === "enqueue" ? CALLERS : 10, supervise: false, schedule: false });

const left = async () => {
  const { rows } = await boss.getDb().executeSql("select count(*)::int as jobs from pgboss.job where state < 'completed'");
  return rows[0].jobs;
};
const put = (several) => boss.insert(QUEUE, several.map((number) => ({ data: { number } })));

async function enqueue() {
  const took = await secondsAtOnce(count, (number) => boss.send(QUEUE, { number }));
  answer({ seconds: took, violations: storedAtOnce(await left(), count) });
}

async function bulk() {
  const took = await seconds(() => inBatches(count, put));
  answer({ seconds: took, violations: stored(await left(), count) });
}

async function drain() {
  await inBatches(count, put);
  await boss.getDb().executeSql("vacuum analyze");
  const tally = new Tally(count);
  const options = { batchSize: 500, burstWhenBatchFull: true, localConcurrency: 2, pollingIntervalSeconds: 0.5 };
  const took = await seconds(async () => {
    await boss.work(QUEUE, options, async (jobs) => jobs.forEach(({ data }) => tally.count(data.number)));
    await tally.all;
    await boss.offWork(QUEUE, { wait: true }); // the last completions are written
  });
  answer({ seconds: took, violations: tally.violations(await left()) });
}

boss.on("error", (error) => console.error(error));
await boss.start();
await boss.createQueue(QUEUE);
await { enqueue, bulk, drain }[what]();
process.exit(0);
