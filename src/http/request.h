/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* One request, from its first line to the end of its reply. */

#include "http/client.h"

/* Reads a request, of which the first byte has come, and answers it. False when the connection
 * has to be closed. */
bool request_serve(struct client *client);
