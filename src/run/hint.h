/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* A hint about a missing Python module that the image `data` (images/data) has. */

#include <stddef.h>

/* Looks for "No module named 'X'" in the last line of `text` that tells of one. Writes the hint
 * to `message`, or leaves that as it is. */
void hint_missing_module(const char *text, size_t len, char *message, size_t size);
