#include "penstock/imported/symbolic_size.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <string_view>

#include "penstock/util/error.h"
#include "penstock/util/text/printable.h"

namespace penstock::imported {

struct SizeExpression::Term {
  enum class Kind : uint8_t { Number, Symbol, Add, Mul, Pow, FloorDiv, Mod, Min, Max };
  Kind kind = Kind::Number;
  int64_t number = 0;
  std::string symbol = {};
  std::vector<Term> operands = {};
};

namespace {

using Term = SizeExpression::Term;
using Kind = Term::Kind;
constexpr int kMaxSizeDepth = 64;

/// Reads sympy's `srepr`.
class Parser {
 public:
  Parser(std::string_view text, std::set<std::string>& symbols) : text_(text), symbols_(symbols) {}

  Term whole() {
    Term term = expression(0);
    skip_blanks();
    if (at_ != text_.size()) fail();
    return term;
  }

 private:
  [[noreturn]] void fail() const {
    constexpr size_t kShown = 100;
    const std::string shown(text_.substr(0, kShown));
    throw ConfigError(fmt::format("cannot read the size '{}{}' at character {}", printable(shown),
                                  text_.size() > kShown ? "..." : "", at_ + 1));
  }
  void skip_blanks() {
    while (at_ < text_.size() && text_[at_] == ' ') ++at_;
  }
  bool take(char wanted) {
    skip_blanks();
    if (at_ == text_.size() || text_[at_] != wanted) return false;
    ++at_;
    return true;
  }
  void expect(char wanted) {
    if (!take(wanted)) fail();
  }
  std::string_view word() {
    skip_blanks();
    const size_t begin = at_;
    while (at_ < text_.size() && (isalnum(static_cast<unsigned char>(text_[at_])) != 0 ||
                                  text_[at_] == '_' || text_[at_] == '.'))
      ++at_;
    if (begin == at_) fail();
    return text_.substr(begin, at_ - begin);
  }
  int64_t number() {
    skip_blanks();
    int64_t value = 0;
    const auto [end, error] =
        std::from_chars(text_.data() + at_, text_.data() + text_.size(), value);
    if (error != std::errc()) fail();
    at_ = static_cast<size_t>(end - text_.data());
    return value;
  }

  Term expression(int depth) {
    if (depth > kMaxSizeDepth) fail();
    std::string_view name = word();
    // Functions of PyTorch's own carry their module's name.
    if (const size_t dot = name.rfind('.'); dot != std::string_view::npos)
      name.remove_prefix(dot + 1);
    if (name == "One") return {.number = 1};
    if (name == "Zero") return {.number = 0};
    if (name == "NegativeOne") return {.number = -1};
    expect('(');
    if (name == "Integer") {
      Term term{.number = number()};
      expect(')');
      return term;
    }
    if (name == "Symbol") return symbol();
    Term term;
    if (name == "Add") {
      term.kind = Kind::Add;
    } else if (name == "Mul") {
      term.kind = Kind::Mul;
    } else if (name == "Pow" || name == "PowByNatural") {
      term.kind = Kind::Pow;
    } else if (name == "FloorDiv" || name == "CleanDiv") {
      term.kind = Kind::FloorDiv;
    } else if (name == "Mod" || name == "PythonMod") {
      term.kind = Kind::Mod;
    } else if (name == "Min") {
      term.kind = Kind::Min;
    } else if (name == "Max") {
      term.kind = Kind::Max;
    } else {
      fail();
    }
    do {
      term.operands.push_back(expression(depth + 1));
    } while (take(','));
    expect(')');
    const bool two =
        term.kind == Kind::Pow || term.kind == Kind::FloorDiv || term.kind == Kind::Mod;
    if (two && term.operands.size() != 2) fail();
    return term;
  }

  /// After "Symbol(": 's77', positive=True, integer=True).
  Term symbol() {
    skip_blanks();
    const char quote = at_ < text_.size() ? text_[at_] : '\0';
    if (quote != '\'' && quote != '"') fail();
    const size_t end = text_.find(quote, at_ + 1);
    if (end == std::string_view::npos) fail();
    Term term{.kind = Kind::Symbol, .symbol = std::string(text_.substr(at_ + 1, end - at_ - 1))};
    at_ = end + 1;
    while (take(',')) {
      word();
      expect('=');
      word();
    }
    expect(')');
    symbols_.insert(term.symbol);
    return term;
  }

  std::string_view text_;
  std::set<std::string>& symbols_;
  size_t at_ = 0;
};

[[noreturn]] void overflow() { throw RuntimeError("a size is beyond 2^63"); }

int64_t sum(int64_t a, int64_t b) {
  int64_t result = 0;
  if (__builtin_add_overflow(a, b, &result)) overflow();
  return result;
}
int64_t product(int64_t a, int64_t b) {
  int64_t result = 0;
  if (__builtin_mul_overflow(a, b, &result)) overflow();
  return result;
}
int64_t floor_divide(int64_t a, int64_t b) {
  if (b == 0) throw RuntimeError("a size is divided by zero");
  if (b == -1) return product(a, b);  // the least number has no opposite
  const int64_t quotient = a / b;
  return quotient - static_cast<int64_t>(a % b != 0 && (a < 0) != (b < 0));
}

int64_t value_of(const Term& term, const Symbols& symbols) {
  switch (term.kind) {
    case Kind::Number:
      return term.number;
    case Kind::Symbol: {
      const auto found = symbols.find(term.symbol);
      if (found == symbols.end())
        throw RuntimeError(fmt::format("the size {} is not known here", printable(term.symbol)));
      return found->second;
    }
    default:
      break;
  }
  int64_t value = value_of(term.operands.front(), symbols);
  for (size_t i = 1; i < term.operands.size(); ++i) {
    const int64_t next = value_of(term.operands[i], symbols);
    switch (term.kind) {
      case Kind::Add:
        value = sum(value, next);
        break;
      case Kind::Mul:
        value = product(value, next);
        break;
      case Kind::FloorDiv:
        value = floor_divide(value, next);
        break;
      case Kind::Mod:
        value = sum(value, -product(floor_divide(value, next), next));
        break;
      case Kind::Min:
        value = std::min(value, next);
        break;
      case Kind::Max:
        value = std::max(value, next);
        break;
      default: {
        if (next < 0 || next > 62) throw RuntimeError("a size has an exponent outside of 0 to 62");
        int64_t power = 1;
        for (int64_t k = 0; k < next; ++k) power = product(power, value);
        value = power;
      }
    }
  }
  return value;
}

}  // namespace

SizeExpression::SizeExpression(const exported::SymbolicInt& size) {
  if (size.is_number()) {
    root_ = std::make_shared<const Term>(Term{.number = size.value});
  } else {
    root_ = std::make_shared<const Term>(Parser(size.expression, symbols_).whole());
  }
}

int64_t SizeExpression::evaluate(const Symbols& symbols) const { return value_of(*root_, symbols); }

int64_t SizeExpression::multiple_of(const std::string& symbol) const {
  if (symbols_.size() != 1 || *symbols_.begin() != symbol) return 0;
  try {
    const int64_t one = evaluate({{symbol, 1}});
    if (one < 1) return 0;
    for (const int64_t value : {2, 3, 64}) {
      if (evaluate({{symbol, value}}) != product(one, value)) return 0;
    }
    return one;
  } catch (const Error&) {
    return 0;
  }
}

}  // namespace penstock::imported
