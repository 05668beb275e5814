/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* One runtime.json: read, checked, its toolchain looked for on this host. */

#include "base/err.h"
#include "lang/runtime.h"

/* Reads the text (len bytes) of dir/runtime.json. Everything in *ret is owned by it. */
int runtime_file_read(
    const char *dir, const char *text, size_t len, struct runtime *ret, struct err *err);
void runtime_done(struct runtime *rt);
