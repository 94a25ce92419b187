// What the contract asks of a plugin that fills: fills are noted on disk before
// anything is written, found again after a crash, never begun twice, and cannot be
// started any more once they were cleaned up.
import { createHash } from 'node:crypto'
import { mkdirSync, readFileSync, readdirSync, rmSync } from 'node:fs'
import { open, rename } from 'node:fs/promises'
import { join } from 'node:path'
import grpc from '@grpc/grpc-js'

/** CallError is how a call ends if not with an answer. */
export class CallError extends Error {
  constructor (code, message) {
    super(message)
    this.code = code
  }
}

/** Failure is why a volume is not filled: it is an answer, not an error of the call. */
export class Failure extends Error {
  constructor (reason, message, permanent = false) {
    super(message)
    Object.assign(this, { reason, permanent })
  }
}

const idPattern = /^[A-Za-z0-9][A-Za-z0-9_-]{0,127}$/
const keepCleaned = 2 * 3600 * 1000

/**
 * Fills are all fills of this plugin. Stages in the journal: started, succeeded,
 * failed, cleaning, cleaned.
 */
export class Fills {
  #entries = new Map() // id → what is in the journal
  #jobs = new Map() // id → the work that runs in this process
  #turns = new Map() // id → the last call about it

  constructor ({ state, limit, fill }) {
    Object.assign(this, { state, limit, fill })
    mkdirSync(state, { recursive: true, mode: 0o700 })
    for (const name of readdirSync(state)) {
      if (!name.endsWith('.json')) {
        rmSync(join(state, name)) // half of an entry: the crash was before its call was answered
        continue
      }
      const entry = JSON.parse(readFileSync(join(state, name), 'utf8'))
      const id = name.slice(0, -'.json'.length)
      this.#entries.set(id, entry)
      if (entry.stage === 'cleaned') this.#forgetLater(id, entry.time)
    }
  }

  /** Start begins a fill that is not known. */
  start ({ id, source, volume }) {
    return this.#inTurn(id, async () => {
      const entry = this.#entries.get(id)
      if (entry?.stage === 'cleaning' || entry?.stage === 'cleaned') {
        throw new CallError(grpc.status.FAILED_PRECONDITION, 'the fill was cleaned up')
      }
      if (!entry) {
        if (this.#jobs.size >= this.limit) throw new CallError(grpc.status.RESOURCE_EXHAUSTED, `${this.limit} fills run already`)
        await this.#note(id, { stage: 'started', handle: volume.csi_handle })
        this.#begin(id, source, volume)
      }
      return this.#answer(id)
    })
  }

  /** Get tells how far a fill is. */
  get (id) {
    return this.#inTurn(id, async () => {
      const stage = this.#entries.get(id)?.stage
      if (!stage || stage === 'cleaning' || stage === 'cleaned') throw new CallError(grpc.status.NOT_FOUND, 'there is no such fill')
      return this.#answer(id)
    })
  }

  /** Cleanup ends a fill for good. When it is done nothing writes any more. */
  cleanup (id) {
    return this.#inTurn(id, async () => {
      const entry = this.#entries.get(id)
      if (entry?.stage === 'cleaned') return { done: true }
      await this.#note(id, { ...entry, stage: 'cleaning' })
      const job = this.#jobs.get(id)
      job?.abort.abort(new Error('the fill was cancelled'))
      await job?.ended
      await this.#note(id, { stage: 'cleaned' })
      this.#forgetLater(id, Date.now())
      return { done: true }
    })
  }

  /** Stop ends what runs, and notes it. */
  async stop () {
    const jobs = [...this.#jobs.values()]
    for (const job of jobs) job.abort.abort(new Error('the plugin is being stopped'))
    await Promise.all(jobs.map((job) => job.ended))
  }

  #begin (id, source, volume) {
    const job = { abort: new AbortController(), done: 0, total: 0 }
    const progress = (done, total) => Object.assign(job, { done, total })
    const hash = createHash('sha256')
    job.ended = this.fill({ id, source, volume, hash }, progress, job.abort.signal).then(
      () => ({ stage: 'succeeded', digest: `sha256:${hash.digest('hex')}` }),
      (error) => {
        if (!(error instanceof Failure)) console.error(error)
        return { stage: 'failed', reason: error.reason ?? '', message: error.message, permanent: error.permanent ?? false }
      },
    ).then(async (end) => {
      // A clean-up that waits for the end has the last word in the journal.
      if (this.#entries.get(id).stage === 'started') {
        await this.#note(id, { ...end, handle: volume.csi_handle, done: job.done, total: job.total })
      }
    }).catch(console.error).finally(() => this.#jobs.delete(id))
    this.#jobs.set(id, job)
  }

  async #answer (id) {
    const job = this.#jobs.get(id)
    let entry = this.#entries.get(id)
    if (entry.stage === 'started' && !job) {
      entry = { ...entry, stage: 'failed', reason: '', message: 'the plugin was restarted while it filled', permanent: false }
      await this.#note(id, entry)
    }
    const fill = {
      id,
      csi_handle: entry.handle,
      bytes_done: job?.done ?? entry.done ?? 0,
      bytes_total: job?.total ?? entry.total ?? 0,
    }
    switch (entry.stage) {
      case 'succeeded':
        return { ...fill, state: 'STATE_SUCCEEDED', digest: entry.digest }
      case 'failed':
        return { ...fill, state: 'STATE_FAILED', failure: { reason: entry.reason, message: entry.message, permanent: entry.permanent } }
      default:
        return { ...fill, state: 'STATE_RUNNING', retry_after: { seconds: 2 } }
    }
  }

  /** Note writes an entry so that a crash leaves it or the one before. */
  async #note (id, entry) {
    entry.time = Date.now()
    const name = join(this.state, `${id}.json`)
    const file = await open(`${name}.tmp`, 'w', 0o600)
    try {
      await file.writeFile(JSON.stringify(entry))
      await file.sync()
    } finally {
      await file.close()
    }
    await rename(`${name}.tmp`, name)
    const dir = await open(this.state)
    await dir.sync().finally(() => dir.close())
    this.#entries.set(id, entry)
  }

  /** ForgetLater forgets a fill when no late start of it can come any more. */
  #forgetLater (id, cleaned) {
    setTimeout(() => {
      this.#entries.delete(id)
      rmSync(join(this.state, `${id}.json`), { force: true })
    }, Math.max(0, cleaned + keepCleaned - Date.now())).unref()
  }

  /** InTurn serves calls about one id one after another. */
  #inTurn (id, serve) {
    if (!idPattern.test(id)) throw new CallError(grpc.status.INVALID_ARGUMENT, 'the id is no UUID')
    const turn = (this.#turns.get(id) ?? Promise.resolve()).then(serve)
    const over = turn.catch(() => {}).then(() => {
      if (this.#turns.get(id) === over) this.#turns.delete(id)
    })
    this.#turns.set(id, over)
    return turn
  }
}
