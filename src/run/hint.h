/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* A hint about a missing module that an image has: `missing_module` of the language's
 * runtime.json names the image and its modules. */

#include "lang/runtime.h"

#include <stddef.h>

/* Looks for the words of the language and 'X' in the last line of `text` that tells of one.
 * Writes the hint to `message`, or leaves that as it is. */
void hint_missing_module(const struct missing_module *missing, const char *text, size_t len,
    char *message, size_t size);
