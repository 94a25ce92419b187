// A Pattern: a line, and how often it stands in a file of the volume.
import { open, stat } from 'node:fs/promises'
import { join } from 'node:path'
import { setTimeout as pause } from 'node:timers/promises'
import { Failure } from './fills.mjs'

const plainName = /^[A-Za-z0-9][A-Za-z0-9._-]{0,200}$/

/** ValidatePattern says what is wrong with a source, or nothing. */
export function validatePattern (source) {
  const { fileName, line, lines } = source.spec ?? {}
  if (!plainName.test(fileName ?? '')) return 'spec.fileName must be a plain file name'
  if (typeof line !== 'string' || line.includes('\n')) return 'spec.line must be one line of text'
  if (!Number.isSafeInteger(lines) || lines < 1) return 'spec.lines must be a number of at least 1'
  return ''
}

const batch = 1000 // lines that are written at a time
const rest = 10 // milliseconds between them, so that one volume does not take all

/** FillPattern writes the file of one volume, until it is done or the signal comes. */
export async function fillPattern (volumes, { source, volume, hash }, progress, signal) {
  const { fileName, line, lines } = source.spec
  if (volume.block) throw new Failure('UnsupportedFormat', 'a pattern is a file, and the volume has no file system', true)
  const dir = join(volumes, plainName.test(volume.csi_handle) ? volume.csi_handle : '.none')
  if (!await stat(dir).then((s) => s.isDirectory(), () => false)) {
    throw new Failure('', `volume ${volume.name} is not in this storage`, true)
  }
  const text = Buffer.from(line + '\n')
  const total = text.length * lines
  if (total > volume.capacity_bytes) {
    throw new Failure('VolumeTooSmall', `the pattern takes ${total} bytes and the volume has ${volume.capacity_bytes}`, true)
  }
  progress(0, total)
  const file = await open(join(dir, fileName), 'wx')
  try {
    for (let n = 0; n < lines;) {
      signal.throwIfAborted()
      const count = Math.min(batch, lines - n)
      const chunk = Buffer.alloc(text.length * count, text)
      await file.writeFile(chunk)
      hash.update(chunk)
      n += count
      progress(text.length * n, total)
      await pause(rest, undefined, { signal })
    }
    await file.sync() // succeeded means: on stable storage
  } finally {
    await file.close()
  }
}
