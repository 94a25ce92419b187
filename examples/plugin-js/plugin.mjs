// A plugin for Sluice in JavaScript: a storage that fills volumes itself.
//
// The storage here is a directory with a directory for each volume, as a file
// server has it. A Pattern is a line and how often it stands in a file. All that
// is particular to them is in pattern.mjs; what the contract asks of any plugin
// that fills is in fills.mjs; this file is the gRPC server.
//
//   node plugin.mjs --socket /run/sluice/pattern.sock --volumes /srv --state /var/lib/pattern
import { chmodSync, rmSync } from 'node:fs'
import { fileURLToPath } from 'node:url'
import { parseArgs } from 'node:util'
import grpc from '@grpc/grpc-js'
import loader from '@grpc/proto-loader'
import { CallError, Fills } from './fills.mjs'
import { fillPattern, validatePattern } from './pattern.mjs'

const { values: flags } = parseArgs({
  options: {
    socket: { type: 'string', default: '/run/sluice/pattern.sock' },
    volumes: { type: 'string', default: '/srv/volumes' },
    state: { type: 'string', default: '/var/lib/pattern' },
    proto: { type: 'string', default: fileURLToPath(new URL('../../proto', import.meta.url)) },
  },
})

const contract = loader.loadSync('populator/v1/populator.proto', {
  includeDirs: [flags.proto], keepCase: true, enums: String, longs: Number, defaults: true,
})
const { Populator } = grpc.loadPackageDefinition(contract).sluice.populator.v1

const fills = new Fills({
  state: flags.state,
  limit: 16,
  fill: (fill, progress, signal) => fillPattern(flags.volumes, fill, progress, signal),
})

/** Source reads the object of a request, or refuses it. */
function sourceOf (request) {
  try {
    const source = JSON.parse(request.source.json.toString('utf8'))
    if (source !== null && typeof source === 'object' && !Array.isArray(source)) return source
  } catch (error) {
    throw new CallError(grpc.status.INVALID_ARGUMENT, `the source cannot be read: ${error.message}`)
  }
  throw new CallError(grpc.status.INVALID_ARGUMENT, 'the source is no object')
}

const methods = {
  GetInfo: async () => ({
    name: 'pattern.example.com',
    version: 'v1',
    source_kinds: [{ group: 'patterns.example.com', kind: 'Pattern' }],
    capabilities: ['CAPABILITY_FILL', 'CAPABILITY_VALIDATE_SOURCE'],
  }),

  ValidateSource: async (request) => ({ invalid: validatePattern(sourceOf(request)) }),

  StartFill: async (request) => {
    const source = sourceOf(request)
    if (!request.volume) throw new CallError(grpc.status.INVALID_ARGUMENT, 'there is no volume')
    const invalid = validatePattern(source)
    if (invalid) throw new CallError(grpc.status.INVALID_ARGUMENT, invalid)
    return { fill: await fills.start({ id: request.id, source, volume: request.volume }) }
  },

  GetFill: async (request) => ({ fill: await fills.get(request.id) }),

  CleanupFill: async (request) => fills.cleanup(request.id),
}

/** Unary makes a method of the contract of a function that returns the answer. */
function unary (method) {
  return (call, answer) => method(call.request).then(
    (response) => answer(null, response),
    (error) => {
      const code = error instanceof CallError ? error.code : grpc.status.UNAVAILABLE
      if (!(error instanceof CallError)) console.error(error)
      answer({ code, details: error.message })
    },
  )
}

const server = new grpc.Server({ 'grpc.max_receive_message_length': 4 << 20 })
server.addService(Populator.service, Object.fromEntries(
  Object.entries(methods).map(([name, method]) => [name, unary(method)]),
))

rmSync(flags.socket, { force: true }) // a crash leaves it behind
server.bindAsync(`unix:${flags.socket}`, grpc.ServerCredentials.createInsecure(), (error) => {
  if (error) throw error
  chmodSync(flags.socket, 0o660)
  console.log(`pattern plugin listens on ${flags.socket}`)
})

for (const signal of ['SIGTERM', 'SIGINT']) {
  process.once(signal, () => server.tryShutdown(() => fills.stop().then(() => process.exit(0))))
}
