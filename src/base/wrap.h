/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* Breaks the lines of help texts between words. */

#include "base/buf.h"

/* Columns when stdout is not a terminal. */
enum { WRAP_WIDTH = 79 };

/* Columns for a help text on stdout: those of its terminal, but from 60 to 100; else
 * WRAP_WIDTH. */
int wrap_width(void);

/* Appends the text and a newline. Its first line begins at `column`, and every line ends within
 * `width` columns unless one word is longer. Newlines of the text stay: the line after one
 * begins at `indent`. What continues a row of a list ("  word  text") begins below the text of
 * the row, other lines at `indent`. */
int wrap_text(struct buf *to, const char *text, int column, int indent, int width);
