// Copyright The Bawn Authors.
// SPDX-License-Identifier: Apache-2.0

// Gets one address with the fetch that Node has built in and prints what comes
// as it comes: fetch.mjs ADDRESS. Node before 24 reads no proxy variable, so
// with one set the dispatcher comes from undici, as its manual says.
if (process.env.HTTPS_PROXY && Number(process.versions.node.split('.')[0]) < 24) {
  const { EnvHttpProxyAgent, setGlobalDispatcher } = await import('undici')
  setGlobalDispatcher(new EnvHttpProxyAgent())
}
const res = await fetch(process.argv[2])
const text = new TextDecoder()
for await (const part of res.body) process.stdout.write(text.decode(part, { stream: true }))
