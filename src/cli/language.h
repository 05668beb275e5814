/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* Which language a program is in. */

#include "lang/runtime.h"

/* Loads one language: the named one, or with name NULL the one of the file's extension. An
 * unknown name is answered with the nearest known one. */
int language_load(struct runtime_registry *ret, const struct lang_dirs *dirs, const char *name,
    const char *file, struct err *err);

/* Guesses the language of a file without an extension: ELF, or from its #! line. NULL when
 * neither. The caller frees. */
char *language_guess(const char *data, size_t len);

/* Whether the name of the file has an extension. */
bool language_has_extension(const char *file);

/* Sets the error that the language of `file` ("-": stdin) is unknown. */
int language_unknown(const char *file, struct err *err);
