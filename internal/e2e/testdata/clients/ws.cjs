// Copyright The Bawn Authors.
// SPDX-License-Identifier: Apache-2.0

// Talks to an echo server with npm's ws: ws.cjs ADDRESS TOKEN [plain]. It
// prints what was negotiated, that each message came back, and how it ended.
const crypto = require('crypto')
const WebSocket = require('ws')
const { HttpsProxyAgent } = require('https-proxy-agent')

const [address, token, plain] = process.argv.slice(2)
const options = { perMessageDeflate: plain ? false : { threshold: 0 } }
if (process.env.HTTPS_PROXY) options.agent = new HttpsProxyAgent(process.env.HTTPS_PROXY)
const socket = new WebSocket(address, options)
const fail = (e) => {
  console.error(e)
  process.exit(1)
}
socket.on('error', fail)
socket.on('unexpected-response', (_, res) => fail(res.statusCode + ' ' + res.headers['bawn-code']))

const next = () => new Promise((resolve) => socket.once('message', (data, binary) => resolve(binary ? data : data.toString())))
const ask = async (message) => {
  const answer = next()
  socket.send(message)
  return answer
}
socket.on('open', async () => {
  const messages = [token, 'é'.repeat(70000), '', crypto.randomBytes(200000), Buffer.alloc(1 << 20)]
  for (const m of messages) {
    const got = await ask(m)
    const want = Buffer.from(m)
    if (!Buffer.from(got).equals(want)) fail('not echoed: ' + want.length + ' bytes, got ' + got.length)
  }
  // In fragments, with a ping of the client's between two.
  const whole = next()
  socket.send('one ', { fin: false })
  const pong = new Promise((resolve) => socket.once('pong', resolve))
  socket.ping('p')
  socket.send('two', { fin: true })
  if ((await whole) !== 'one two') fail('fragments')
  if ((await pong).toString() !== 'p') fail('pong')
  console.log('here: ' + (socket.extensions || 'none'))
  socket.on('close', (code, reason) => console.log('closed ' + code + ' ' + reason + ' ' + token))
  socket.send('close 4001 bye')
})
