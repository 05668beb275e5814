/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* The OpenAPI document of this API, made from the table of routes and from src/http/openapi/.
 */

#include "base/err.h"
#include "lang/limits.h"

/* Returns the document as JSON, with the bounds of these maxima; the caller frees it. Returns
 * NULL with err when routes and operations do not match. */
char *openapi_make(const struct run_limits *maxima, struct err *err);
