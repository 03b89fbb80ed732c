// Copyright The Bawn Authors.
// SPDX-License-Identifier: Apache-2.0
// The fetch that Node has built in. Node before 24 reads no proxy variable, so
// with one set the dispatcher comes from undici, as its manual says.
if (process.env.HTTPS_PROXY) {
  const { EnvHttpProxyAgent, setGlobalDispatcher } = await import('undici')
  setGlobalDispatcher(new EnvHttpProxyAgent())
}
const res = await fetch(process.argv[2])
console.log(await res.text())
