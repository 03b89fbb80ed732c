// Copyright The Bawn Authors.
// SPDX-License-Identifier: Apache-2.0

// Echo ends with npm's ws: "node echo.cjs server" prints its port, "node
// echo.cjs client PORT CASES [PROXY-PORT NAME]" opens the WebSocket of each case.
const http = require('http')
const net = require('net')
const fs = require('fs')
const { WebSocket, WebSocketServer } = require('ws')

const limit = 64 << 20
const [mode, port, cases, proxy, name] = process.argv.slice(2)

if (mode === 'server') {
  const server = http.createServer()
  const sockets = new WebSocketServer({ server, perMessageDeflate: { threshold: 0 }, maxPayload: limit })
  sockets.on('connection', (s) => {
    s.on('error', () => {})
    s.on('message', (data, binary) => s.send(data, { binary }))
  })
  server.listen(0, '127.0.0.1', () => console.log(JSON.stringify({ port: server.address().port })))
} else {
  run()
}

async function run() {
  const left = JSON.parse(fs.readFileSync(cases))
  const worker = async () => {
    while (left.length) await one(left.shift())
  }
  await Promise.all([worker(), worker(), worker(), worker()])
}

function one(id) {
  return new Promise((done) => {
    const host = proxy ? name : '127.0.0.1:' + port
    const open = (options, connected) => {
      const sock = net.connect(Number(proxy || port), '127.0.0.1')
      if (!proxy) {
        return sock
      }
      sock.on('connect', () => sock.write(`CONNECT ${name}:80 HTTP/1.1\r\nHost: ${name}:80\r\n\r\n`))
      sock.once('data', () => connected(null, sock)) // the answer, whole, and nothing else yet
    }
    const agent = new http.Agent()
    agent.createConnection = open
    const s = new WebSocket(`ws://${host}/ws/${id}`, { agent, perMessageDeflate: { threshold: 0 }, maxPayload: limit })
    s.on('error', () => {})
    s.on('message', (data, binary) => s.send(data, { binary }))
    s.on('close', done)
  })
}
