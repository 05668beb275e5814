/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* MCP on standard input and output: one message per line, both eras. */

#include "mcp/mcp.h"

/* Serves until standard input ends. Returns the exit status. */
int mcp_stdio_serve(struct mcp *mcp, const struct mcp_surface *surface);
