// Copyright The Bawn Authors.
// SPDX-License-Identifier: Apache-2.0

package names

// A tenantZone is a zone whose names go to customers and which the public
// suffix list does not hold as such. Where the names of customers lie at more
// than one depth (a region or a service in between), deep makes every wildcard
// inside the zone too wide, except below a private suffix of the list, where a
// name belongs to one customer.
type tenantZone struct {
	zone Host
	deep bool
	why  string
}

// tenantZones is the project's own list. It need not repeat the public suffix
// list; an entry gives the reason that the author of a policy will read. Read
// only.
var tenantZones = [...]tenantZone{
	// Clouds: storage, queues, databases and functions of any customer.
	{Host{"amazonaws.com"}, true, "names of AWS services and customers (buckets, functions, load balancers)"},
	{Host{"amazonaws.com.cn"}, true, "names of AWS services and customers (buckets, functions, load balancers)"},
	{Host{"on.aws"}, true, "function addresses of every AWS customer"},
	{Host{"amazoncognito.com"}, true, "sign-in pages of every AWS customer"},
	{Host{"sagemaker.aws"}, true, "notebooks of every AWS customer"},
	{Host{"windows.net"}, true, "storage, queues and databases of every Azure customer"},
	{Host{"azure.com"}, true, "resources of every Azure customer"},
	{Host{"azure.net"}, true, "resources of every Azure customer"},
	{Host{"azurecr.io"}, false, "container registries of every Azure customer"},
	{Host{"usgovcloudapi.net"}, true, "storage of every Azure government customer"},
	{Host{"storage.googleapis.com"}, false, "every Google Cloud Storage bucket has a name here"},
	{Host{"googleusercontent.com"}, true, "content and services of Google's customers"},
	{Host{"cloudflarestorage.com"}, true, "object storage of every Cloudflare customer"},
	{Host{"cfargotunnel.com"}, false, "tunnels of every Cloudflare customer"},
	{Host{"digitaloceanspaces.com"}, true, "object storage of every DigitalOcean customer"},
	{Host{"backblazeb2.com"}, true, "object storage of every Backblaze customer"},
	{Host{"wasabisys.com"}, true, "object storage of every Wasabi customer"},
	{Host{"linodeobjects.com"}, true, "object storage of every Linode customer"},
	{Host{"aliyuncs.com"}, true, "resources of every Alibaba Cloud customer"},
	{Host{"myqcloud.com"}, true, "object storage of every Tencent Cloud customer"},
	{Host{"oraclecloud.com"}, true, "resources of every Oracle Cloud customer"},
	{Host{"appdomain.cloud"}, true, "object storage and services of every IBM Cloud customer"},
	{Host{"scw.cloud"}, true, "resources of every Scaleway customer"},
	{Host{"fastly.net"}, true, "sites of every Fastly customer"},
	{Host{"app.render.com"}, false, "services of every Render customer"},
	{Host{"up.railway.app"}, false, "services of every Railway customer"},
	{Host{"platform.sh"}, true, "sites of every Platform.sh customer"},
	{Host{"mongodb.net"}, true, "databases of every MongoDB Atlas customer"},
	{Host{"neon.tech"}, true, "databases of every Neon customer"},
	{Host{"upstash.io"}, true, "databases of every Upstash customer"},
	{Host{"snowflakecomputing.com"}, true, "accounts of every Snowflake customer"},

	// Services that give a customer a name and take data at it.
	{Host{"zapier.com"}, false, "web hooks of every Zapier customer"},
	{Host{"pipedream.net"}, true, "web hooks of every Pipedream customer"},
	{Host{"slack.com"}, false, "a name for each workspace, and web hooks of all of them"},
	{Host{"atlassian.net"}, false, "sites of every Atlassian customer"},
	{Host{"sharepoint.com"}, false, "sites of every Microsoft 365 customer"},
	{Host{"logic.azure.com"}, true, "workflows of every Azure customer"},
	{Host{"powerplatform.com"}, true, "workflows of every Power Platform customer"},
	{Host{"zendesk.com"}, false, "help desks of every Zendesk customer"},
	{Host{"service-now.com"}, false, "instances of every ServiceNow customer"},
	{Host{"salesforce.com"}, true, "orgs of every Salesforce customer"},
	{Host{"force.com"}, true, "orgs of every Salesforce customer"},
	{Host{"sentry.io"}, true, "event intake of every Sentry customer"},
	{Host{"grafana.net"}, true, "stacks of every Grafana customer"},
	{Host{"auth0.com"}, true, "tenants of every Auth0 customer"},
	{Host{"okta.com"}, false, "tenants of every Okta customer"},
	{Host{"webhook.site"}, false, "collects requests for whoever asks"},
	{Host{"beeceptor.com"}, true, "collects requests for whoever asks"},
	{Host{"requestcatcher.com"}, false, "collects requests for whoever asks"},
	{Host{"oastify.com"}, true, "collects requests and DNS queries for whoever asks"},
	{Host{"burpcollaborator.net"}, true, "collects requests and DNS queries for whoever asks"},
	{Host{"interact.sh"}, true, "collects requests and DNS queries for whoever asks"},
	{Host{"oast.pro"}, true, "collects requests and DNS queries for whoever asks"},
	{Host{"oast.live"}, true, "collects requests and DNS queries for whoever asks"},
	{Host{"oast.fun"}, true, "collects requests and DNS queries for whoever asks"},

	// Tunnels to whoever starts one.
	{Host{"loca.lt"}, true, "tunnels to anybody's machine"},
	{Host{"lhr.life"}, true, "tunnels to anybody's machine"},
	{Host{"serveo.net"}, true, "tunnels to anybody's machine"},
	{Host{"devtunnels.ms"}, true, "tunnels to anybody's machine"},

	// Names that resolve to whatever address is written in them.
	{Host{"nip.io"}, true, "resolves to any address that is written in the name"},
	{Host{"sslip.io"}, true, "resolves to any address that is written in the name"},
	{Host{"traefik.me"}, true, "resolves to any address that is written in the name"},
	{Host{"1u.ms"}, true, "resolves to any address that is written in the name, and changes its answer"},
}
