// Copyright The Bawn Authors.
// SPDX-License-Identifier: Apache-2.0

// An echo server with npm's ws: node echo.cjs ADDRESS PORT, certificate and
// key in the working directory.
const fs = require('fs')
const https = require('https')
const { WebSocketServer } = require('ws')

const [address, port] = process.argv.slice(2)
const server = https.createServer({ cert: fs.readFileSync('cert.pem'), key: fs.readFileSync('key.pem') })
const sockets = new WebSocketServer({ server, perMessageDeflate: { threshold: 0 }, maxPayload: 64 << 20 })
sockets.on('connection', (s) => {
  s.on('error', () => {})
  s.on('message', (data, binary) => {
    const text = binary ? '' : data.toString()
    const close = /^close (\d+) (.*)$/.exec(text)
    if (text === 'extensions') {
      s.send(s.extensions)
    } else if (text === 'ping') {
      s.once('pong', (payload) => s.send('pong ' + payload))
      s.ping('are you there')
    } else if (close) {
      s.close(Number(close[1]), close[2])
    } else {
      s.send(data, { binary })
    }
  })
})
server.listen(Number(port), address)
