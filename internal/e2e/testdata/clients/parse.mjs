// Copyright The Bawn Authors.
// SPDX-License-Identifier: Apache-2.0
// Reads the bytes of one connection from standard input with Node's own HTTP
// server, strict as it comes, and prints one JSON line for each request.
import { createServer } from 'node:http'
import { createHash } from 'node:crypto'
import { Duplex } from 'node:stream'
import { readFileSync } from 'node:fs'

const server = createServer((req, res) => {
  const sum = createHash('sha256')
  let bytes = 0
  req.on('data', d => { sum.update(d); bytes += d.length })
  req.on('end', () => {
    console.log(JSON.stringify({
      method: req.method, target: req.url, host: req.headers.host, bytes, sha256: sum.digest('hex'),
    }))
    res.end()
  })
})
server.on('clientError', e => console.log(JSON.stringify({ error: String(e) })))
const input = readFileSync(0)
const connection = new Duplex({ read () {}, write (chunk, enc, done) { done() } })
connection.setTimeout = connection.setNoDelay = connection.setKeepAlive = () => connection
server.emit('connection', connection)
connection.push(input)
connection.push(null)
