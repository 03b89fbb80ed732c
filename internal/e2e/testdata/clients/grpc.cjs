// Copyright The Bawn Authors.
// SPDX-License-Identifier: Apache-2.0

// Calls gRPC's interoperability server with @grpc/grpc-js: grpc.cjs HOST:PORT.
// It prints the name of each case that passed; what fails ends the program. With
// a second argument it calls that one method, which has to fail, and prints the
// status and what it says.
const fs = require('fs')
const path = require('path')
const grpc = require('@grpc/grpc-js')
const loader = require('@grpc/proto-loader')

const roots = fs.readFileSync(process.env.SSL_CERT_FILE || '/etc/ssl/certs/ca-certificates.crt')
const { grpc: pkg } = grpc.loadPackageDefinition(loader.loadSync(path.join(__dirname, 'interop.proto'), { keepCase: true }))
const client = new pkg.testing.TestService(process.argv[2], grpc.credentials.createSsl(roots), {
  'grpc.max_receive_message_length': 16 << 20,
  'grpc.max_send_message_length': 16 << 20,
})

const size = 8 << 20
const body = (n) => ({ body: Buffer.alloc(n) })
const equal = (got, want, what) => {
  if (got !== want) throw new Error(what + ': ' + got + ', want ' + want)
}
const unary = (method, message, metadata, options) =>
  new Promise((resolve, reject) => {
    let trailer
    const call = client[method](message, metadata || new grpc.Metadata(), options || {}, (err, reply) => {
      // The status comes after the reply; both are wanted.
      setImmediate(() => (err ? reject(err) : resolve({ reply, trailer })))
    })
    call.on('status', (s) => (trailer = s.metadata))
  })
const refused = (promise) => promise.then(() => { throw new Error('not refused') }, (err) => err)
const answers = async (stream, want, what) => {
  const got = []
  for await (const reply of stream) got.push(reply.payload.body.length)
  equal(got.join(), want.join(), what)
}

const cases = {
  empty_unary: () => unary('EmptyCall', {}),
  '8_mib_both_ways': async () => {
    const { reply } = await unary('UnaryCall', { response_size: size, payload: body(size) })
    equal(reply.payload.body.length, size, 'reply')
  },
  client_streaming: () =>
    new Promise((resolve, reject) => {
      const call = client.StreamingInputCall((err, reply) => {
        if (err) return reject(err)
        equal(reply.aggregated_payload_size, 74922, 'sum')
        resolve()
      })
      for (const n of [27182, 8, 1828, 45904]) call.write({ payload: body(n) })
      call.end()
    }),
  server_streaming: () => {
    const sizes = [31415, 9, 2653, 58979]
    return answers(client.StreamingOutputCall({ response_parameters: sizes.map((size) => ({ size })) }), sizes, 'stream')
  },
  ping_pong: async () => {
    const call = client.FullDuplexCall()
    const it = call[Symbol.asyncIterator]()
    for (const [n, size] of [[27182, 31415], [8, 9], [1828, 2653], [45904, 58979]]) {
      call.write({ response_parameters: [{ size }], payload: body(n) })
      const { value } = await it.next() // comes before more is sent
      equal(value.payload.body.length, size, 'pong')
    }
    call.end()
    equal((await it.next()).done, true, 'end')
  },
  timeout_on_sleeping_server: async () => {
    const call = client.FullDuplexCall({ deadline: Date.now() + 1 })
    const err = await refused(answers(call, [], 'stream'))
    equal(err.code, grpc.status.DEADLINE_EXCEEDED, 'status')
  },
  status_code_and_message: async () => {
    const err = await refused(unary('UnaryCall', { response_status: { code: 2, message: 'test status message' } }))
    equal(err.code + ' ' + err.details, '2 test status message', 'status')
  },
  status_with_trailers: async () => {
    const metadata = new grpc.Metadata()
    const key = 'x-grpc-test-echo-trailing-bin'
    metadata.set(key, Buffer.from([0xab, 0xab, 0xab]))
    const err = await refused(unary('UnaryCall', { response_status: { code: 5, message: 'none' } }, metadata))
    equal(err.code + ' ' + Buffer.from(err.metadata.get(key)[0]).toString('hex'), '5 ababab', 'status and trailer')
  },
  cancel_after_begin: async () => {
    const err = await refused(
      new Promise((resolve, reject) => {
        const call = client.StreamingInputCall((err) => (err ? reject(err) : resolve()))
        call.cancel()
      }),
    )
    equal(err.code, grpc.status.CANCELLED, 'status')
  },
}

async function main() {
  if (process.argv[3]) {
    const err = await refused(unary(process.argv[3], {}))
    return console.log(err.code + ' ' + err.details)
  }
  for (const [name, run] of Object.entries(cases)) {
    try {
      await run()
    } catch (e) {
      throw new Error(name + ': ' + e.message)
    }
    console.log(name)
  }
  client.close()
}

main().then(
  () => process.exit(0), // what was cancelled keeps node waiting
  (e) => {
    console.error(e.message)
    process.exit(1)
  },
)
