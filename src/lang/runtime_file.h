/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* Reads and checks one runtime.json and looks for its toolchain on this host. */

#include "base/err.h"
#include "lang/runtime.h"

/* Reads the text (len bytes) of dir/runtime.json. *ret owns everything in it. */
int runtime_file_read(
    const char *dir, const char *text, size_t len, struct runtime *ret, struct err *err);
void runtime_done(struct runtime *rt);
