// Copyright The Bawn Authors.
// SPDX-License-Identifier: Apache-2.0

// What programs do whose libraries know no proxy: tunnel(url) gives a TLS
// connection through CONNECT where HTTPS_PROXY is set, else a direct one.
const http = require('http')
const tls = require('tls')

exports.tunnel = async function tunnel(url, protocols) {
  const host = url.hostname
  const port = url.port || 443
  const wanted = { host, port, servername: host, ALPNProtocols: protocols }
  if (process.env.HTTPS_PROXY) {
    const proxy = new URL(process.env.HTTPS_PROXY)
    const to = host + ':' + port // as Host too: node would name the proxy there
    wanted.socket = await new Promise((resolve, reject) => {
      const req = http.request({ host: proxy.hostname, port: proxy.port, method: 'CONNECT', path: to, headers: { Host: to } })
      req.on('connect', (res, socket) => {
        if (res.statusCode === 200) resolve(socket)
        else reject(new Error('CONNECT: ' + res.statusCode + ' ' + res.headers['bawn-code']))
      })
      req.on('error', reject)
      req.end()
    })
  }
  return new Promise((resolve, reject) => {
    const secure = tls.connect(wanted, () => resolve(secure))
    secure.on('error', reject)
  })
}
