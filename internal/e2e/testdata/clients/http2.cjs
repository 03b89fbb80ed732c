// Copyright The Bawn Authors.
// SPDX-License-Identifier: Apache-2.0

// Gets one address with node's http2, on one connection with a few streams at
// once, and prints the last answer as it comes: http2.cjs ADDRESS [STREAMS].
const http2 = require('http2')
const { tunnel } = require('./tunnel.cjs')

async function main() {
  const url = new URL(process.argv[2])
  const secure = await tunnel(url, ['h2'])
  if (secure.alpnProtocol !== 'h2') throw new Error('negotiated ' + secure.alpnProtocol)
  const session = http2.connect(url.origin, { createConnection: () => secure })
  const get = (print) =>
    new Promise((resolve, reject) => {
      const stream = session.request({ ':path': url.pathname + url.search })
      stream.on('data', (part) => print && process.stdout.write(part))
      stream.on('end', resolve)
      stream.on('error', reject)
    })
  const many = []
  for (let n = Number(process.argv[3] || 1); n > 1; n--) many.push(get(false))
  await Promise.all(many)
  await get(true)
  session.close()
}

main().catch((e) => {
  console.error(e)
  process.exit(1)
})
