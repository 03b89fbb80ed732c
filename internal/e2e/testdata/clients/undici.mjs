// Copyright The Bawn Authors.
// SPDX-License-Identifier: Apache-2.0

// Gets one address with undici and prints what comes as it comes:
// undici.mjs ADDRESS [h2]. It has a dispatcher of its own, as SDKs do: without
// a proxy variable it knows nothing of a proxy.
import { Agent, EnvHttpProxyAgent, request } from 'undici'

const allowH2 = process.argv[3] === 'h2'
const dispatcher = process.env.HTTPS_PROXY ? new EnvHttpProxyAgent({ allowH2, requestTls: { allowH2 } }) : new Agent({ allowH2 })
const { body } = await request(process.argv[2], { dispatcher })
for await (const part of body) process.stdout.write(part)
