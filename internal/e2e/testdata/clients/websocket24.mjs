// Copyright The Bawn Authors.
// SPDX-License-Identifier: Apache-2.0

// Talks to an echo server with the WebSocket that is built into Node:
// websocket24.mjs ADDRESS TOKEN.
const [address, token] = process.argv.slice(2)
const socket = new WebSocket(address)
socket.onerror = (e) => {
  console.error(e.message, e.error)
  process.exit(1)
}
socket.onopen = () => socket.send(token)
socket.onmessage = (e) => {
  if (e.data !== token) throw new Error('not echoed: ' + e.data)
  socket.send('close 4001 bye')
}
socket.onclose = (e) => {
  console.log('closed ' + e.code + ' ' + e.reason + ' ' + token)
}
