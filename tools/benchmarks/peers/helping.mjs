// What the scripts of the peers on Node share.

export const CALLERS = 32;
const BATCH = 1000;

export const answer = (facts) => console.log(JSON.stringify(facts));

export const numbers = (first, count) => Array.from({ length: Math.min(BATCH, count - first) }, (_, n) => first + n);

export async function inBatches(count, put) {
  for (let first = 0; first < count; first += BATCH) await put(numbers(first, count));
}

/** Seconds that something takes. */
export async function seconds(work) {
  const begun = performance.now();
  await work();
  return (performance.now() - begun) / 1000;
}

/**
 * How long 32 callers take together for so many calls, each making one after another. Each has made one before, with
 * numbers from `count` on: connections are there and statements are prepared.
 */
export async function secondsAtOnce(count, call) {
  await Promise.all(Array.from({ length: CALLERS }, (_, n) => call(count + n)));
  let next = 0;
  const caller = async () => {
    while (next < count) await call(next++);
  };
  return seconds(() => Promise.all(Array.from({ length: CALLERS }, caller)));
}

/** Which jobs were run how often; `all` is there when each was run, and none is waited for. */
export class Tally {
  constructor(expected) {
    this.runs = new Array(expected).fill(0);
    this.left = expected;
    this.all = new Promise((resolve) => (this.resolve = resolve));
  }

  count(number) {
    this.runs[number]++;
    if (--this.left === 0) this.resolve();
  }

  violations(left) {
    const found = {
      "jobs are left": left,
      "jobs were never run": this.runs.filter((times) => times === 0).length,
      "jobs were run more than once": this.runs.filter((times) => times > 1).length,
    };
    return Object.entries(found).flatMap(([what, count]) => (count ? [`${count} ${what}`] : []));
  }
}

/** Whether as many jobs are stored as calls were made. */
export const stored = (found, count) => (found === count ? [] : [`${found} jobs are stored after ${count} calls`]);

/** The same after `secondsAtOnce`. */
export const storedAtOnce = (found, count) => stored(found, count + CALLERS);
