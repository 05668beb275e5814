/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* The jobs of hermes-setup (proto/setup.h). All return 0 or negative errno. */

#include "proto/setup.h"

int setup_probe(void);                              /* probe.c */
int setup_map_ids(const struct setup_order *order); /* ids.c */
