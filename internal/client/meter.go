// Copyright The Bawn Authors.
// SPDX-License-Identifier: Apache-2.0

package client

import (
	"context"
	"fmt"
	"io"
	"net/url"

	"bawn/internal/apitype"
)

// PlaneReport tells admin what a plane counts.
func (c *Client) PlaneReport(ctx context.Context, r apitype.PlaneReport) error {
	return c.call(ctx, "POST", "/plane/report", r, nil)
}

// Budgets says what an agent, or every one, has used of its budgets.
func (c *Client) Budgets(ctx context.Context, agent string) (b apitype.Budgets, err error) {
	return b, c.call(ctx, "GET", "/budgets?"+url.Values{"agent": {agent}}.Encode(), nil, &b)
}

// Metrics returns all metrics in the text format of Prometheus.
func (c *Client) Metrics(ctx context.Context) ([]byte, error) {
	resp, err := c.send(ctx, "GET", "/metrics", nil)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(io.LimitReader(resp.Body, maxReply))
	if err != nil {
		return nil, fmt.Errorf("reading the metrics: %w", err)
	}
	return text, nil
}
