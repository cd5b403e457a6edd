// Decoding: from a line of llvm-objdump to an Instruction.
#pragma once
#include "lanes.h"

// One operand: register, constant or name, with its sign modifiers.
Operand parse_operand(std::string text);

// Reads a line into I, whose address and first word are set, and finds the function that executes it.
void parse_instruction(Instruction& I, const std::string& text);

// Executes what the table lacks: a fault with the text.
void not_implemented(Wave& w, const Instruction& I);

// Parts of text between separators that are outside of brackets.
std::vector<std::string> split_outside_brackets(const std::string& text, char separator);

std::string trimmed(const std::string& text);
