/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* Colours of the output: on terminals only, unless --color says otherwise. */

#include <stdbool.h>
#include <stdio.h>

enum color { COLOR_GOOD, COLOR_BAD, COLOR_WARN, COLOR_STRONG };

/* Takes the value of --color: auto, always or never. False when it is another word. */
bool color_choose(const char *when);

/* The sequences that begin and end a colour on this stream; "" when it has none. With `auto` a
 * stream has colours when it is a terminal, NO_COLOR is unset or empty, and TERM is not "dumb".
 */
const char *color_on(FILE *stream, enum color color);
const char *color_off(FILE *stream);
