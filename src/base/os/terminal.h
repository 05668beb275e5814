/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

/* Columns of the terminal at this descriptor; 0 when it is not a terminal or has no size. */
int terminal_columns(int fd);
