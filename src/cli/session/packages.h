/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* `hermes session pip install` and `npm install`. */

#include "cli/session/command.h"

/* Installs the packages that the words behind the id name. On a terminal one line tells how far
 * it is, otherwise the log goes to stderr. Prints what was installed. */
int packages_install(const struct args *args, const char *manager, struct err *err);
