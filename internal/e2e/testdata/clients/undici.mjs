// Copyright The Bawn Authors.
// SPDX-License-Identifier: Apache-2.0
// undici with a dispatcher of its own, as SDKs do: without a proxy variable it
// knows nothing of a proxy.
import { Agent, EnvHttpProxyAgent, request } from 'undici'
const dispatcher = process.env.HTTPS_PROXY ? new EnvHttpProxyAgent() : new Agent()
const { body } = await request(process.argv[2], { dispatcher })
console.log(await body.text())
