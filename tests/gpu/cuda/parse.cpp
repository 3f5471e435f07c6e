/* PTX text to instructions with names in them. */
#include <cstdlib>
#include <cstring>

#include "ptx.h"

namespace ptx {

namespace {

struct Token {
  enum Kind : uint8_t { end, word, number, punctuation, text } kind = end;
  std::string text_;
  uint64_t bits = 0;
  Type literal = Type::none;
  int line = 0;
  bool is(const char *wanted) const { return kind != text && text_ == wanted; }
};

class Lexer {
public:
  explicit Lexer(const std::string &text) : at_(text.c_str()), end_(at_ + text.size()) { advance(); }
  const Token &peek() const { return token_; }
  Token take() {
    Token taken = token_;
    advance();
    return taken;
  }
  bool accept(const char *text) {
    if (!token_.is(text))
      return false;
    advance();
    return true;
  }
  void expect(const char *text) {
    if (!accept(text))
      stop("PTX line %d: '%s' expected, not '%s'", token_.line, text, token_.text_.c_str());
  }

private:
  static bool is_word(char c) { return isalnum((unsigned char)c) || c == '_' || c == '$' || c == '%'; }

  void skip_blanks() {
    while (at_ < end_) {
      if (*at_ == '\n')
        ++line_;
      if (isspace((unsigned char)*at_) || !*at_)
        ++at_;
      else if (at_[0] == '/' && at_[1] == '/')
        while (at_ < end_ && *at_ != '\n')
          ++at_;
      else if (at_[0] == '/' && at_[1] == '*') {
        for (at_ += 2; at_ < end_ && !(at_[0] == '*' && at_[1] == '/'); ++at_)
          line_ += *at_ == '\n';
        at_ += 2;
      } else
        break;
    }
  }

  void advance() {
    skip_blanks();
    token_ = Token();
    token_.line = line_;
    if (at_ >= end_)
      return;
    const char *begin = at_;
    if (isdigit((unsigned char)*at_)) {
      read_number();
    } else if (is_word(*at_) || (*at_ == '.' && isalpha((unsigned char)at_[1]))) {
      token_.kind = Token::word;
      /* An opcode or a directive has its modifiers with it, as has a special register (%tid.x). */
      for (++at_; at_ < end_ && (is_word(*at_) || *at_ == '.' || (at_[0] == ':' && at_[1] == ':')); ++at_)
        if (*at_ == ':')
          ++at_;
    } else if (*at_ == '"') {
      token_.kind = Token::text;
      for (++at_; at_ < end_ && *at_ != '"'; ++at_)
        at_ += *at_ == '\\';
      ++at_;
    } else {
      token_.kind = Token::punctuation;
      ++at_;
    }
    token_.text_.assign(begin, at_);
  }

  void read_number() {
    token_.kind = Token::number;
    char *behind = nullptr;
    char kind = (char)tolower(at_[1]);
    if (*at_ == '0' && (kind == 'f' || kind == 'd')) {
      size_t digits = kind == 'f' ? 8 : 16;
      token_.bits = strtoull(std::string(at_ + 2, digits).c_str(), nullptr, 16);
      token_.literal = kind == 'f' ? Type::f32 : Type::f64;
      at_ += 2 + digits;
      return;
    }
    token_.bits = kind == 'b' && *at_ == '0' ? strtoull(at_ + 2, &behind, 2) : strtoull(at_, &behind, 0);
    if (*behind == '.' || ((*behind == 'e' || *behind == 'E') && kind != 'x')) {
      double value = strtod(at_, &behind);
      memcpy(&token_.bits, &value, sizeof value);
      token_.literal = Type::f64;
    }
    at_ = behind;
    while (*at_ == 'U' || *at_ == 'u')
      ++at_;
  }

  const char *at_, *end_;
  int line_ = 1;
  Token token_;
};

std::vector<std::string> split(const std::string &word) {
  std::vector<std::string> parts;
  size_t begin = 0;
  while (begin <= word.size()) {
    size_t end = word.find('.', begin);
    if (end == std::string::npos)
      end = word.size();
    if (end > begin)
      parts.push_back(word.substr(begin, end - begin));
    begin = end + 1;
  }
  return parts;
}

Space space_of(const std::string &name) {
  return name == "const" ? Space::constant : name == "shared" ? Space::shared : name == "local" ? Space::local
         : name == "param" ? Space::param : Space::global;
}

class Parser {
public:
  Parser(const std::string &text, Image &image) : lexer_(text), image_(image) {}

  void parse() {
    while (lexer_.peek().kind != Token::end)
      top_level();
  }

private:
  Module &module() {
    if (image_.modules.empty())
      stop("PTX without .version");
    return *image_.modules.back();
  }

  void top_level() {
    Token token = lexer_.take();
    const std::string &word = token.text_;
    if (word == ".version") {
      lexer_.take(); /* 9.0, as a number or as 9 and .0 */
      image_.modules.push_back(std::make_unique<Module>());
      image_.modules.back()->image = &image_;
    } else if (word == ".target") {
      std::string name = lexer_.take().text_;
      module().arch = name.rfind("sm_", 0) == 0 ? atoi(name.c_str() + 3) : 0;
      while (lexer_.accept(","))
        lexer_.take();
    } else if (word == ".address_size") {
      if (lexer_.take().bits != 64)
        stop("PTX with addresses of 32 bits");
    } else if (word == ".section") {
      skip_section();
    } else if (word == ".file") {
      int line = token.line;
      while (lexer_.peek().kind != Token::end && lexer_.peek().line == line)
        lexer_.take();
    } else if (word == ".pragma" || word == ".alias") {
      while (!lexer_.accept(";"))
        lexer_.take();
    } else {
      declaration(word);
    }
  }

  void skip_section() {
    while (!lexer_.accept("{"))
      lexer_.take();
    for (int depth = 1; depth;) {
      Token token = lexer_.take();
      depth += token.is("{") ? 1 : token.is("}") ? -1 : 0;
    }
  }

  void declaration(std::string word) {
    bool is_extern = false, is_weak = false, is_visible = false;
    for (;; word = lexer_.take().text_)
      if (word == ".extern")
        is_extern = true;
      else if (word == ".weak" || word == ".common")
        is_weak = true;
      else if (word == ".visible")
        is_visible = true;
      else
        break;
    if (word == ".func" || word == ".entry") {
      function(word == ".entry", is_weak, is_visible || is_extern || is_weak);
      return;
    }
    std::vector<std::string> parts = split(word);
    Variable pattern;
    pattern.is_extern = is_extern, pattern.is_weak = is_weak;
    pattern.is_visible = is_visible || is_extern || is_weak;
    pattern.space = space_of(parts.empty() ? "" : parts[0]);
    for (Variable &made : variables(pattern, parts)) {
      auto &place = module().variables[made.name];
      if (!place || place->is_extern)
        place = std::make_unique<Variable>(made);
    }
  }

  /* Reads ".align 8 .b8 name[16] = {...}, name2;" with the first word's parts taken already. */
  std::vector<Variable> variables(Variable pattern, const std::vector<std::string> &parts) {
    uint64_t count = 1;
    auto take = [&](const std::vector<std::string> &words) {
      for (const std::string &word : words)
        if (word == "align")
          pattern.align = lexer_.take().bits;
        else if (word == "v2" || word == "v4")
          count = word == "v2" ? 2 : 4;
        else if (word == "managed")
          pattern.is_managed = true;
        else if (word == "attribute") {
          lexer_.expect("(");
          while (!lexer_.accept(")"))
            pattern.is_managed |= lexer_.take().text_ == ".managed";
        } else if (type_of(word) != Type::none)
          pattern.type = type_of(word);
    };
    take(parts);
    while (lexer_.peek().kind == Token::word && lexer_.peek().text_[0] == '.')
      take(split(lexer_.take().text_));
    std::vector<Variable> made;
    do {
      Variable one = pattern;
      one.name = lexer_.take().text_;
      uint64_t element = size_of(one.type) * count;
      one.size = element;
      while (lexer_.accept("[")) {
        uint64_t length = lexer_.peek().is("]") ? 0 : lexer_.take().bits;
        lexer_.expect("]");
        one.size = one.size * length;
      }
      if (one.align < element)
        one.align = element;
      if (lexer_.accept("=")) {
        initial(one);
        if (one.init.size() > one.size)
          one.size = one.init.size();
      }
      made.push_back(one);
    } while (lexer_.accept(","));
    lexer_.accept(";");
    return made;
  }

  void initial(Variable &into) {
    if (lexer_.accept("{")) {
      while (!lexer_.accept("}")) {
        initial(into);
        lexer_.accept(",");
      }
      return;
    }
    unsigned size = size_of(into.type);
    uint64_t bits = 0;
    bool is_negative = lexer_.accept("-");
    Token token = lexer_.take();
    if (token.kind == Token::number) {
      bits = value_as(token, into.type);
      if (is_negative)
        bits = token.literal == Type::none ? 0 - bits : bits ^ (1ull << (size * 8 - 1));
    } else {
      symbol(into, token);
    }
    for (unsigned byte = 0; byte < size; ++byte)
      into.init.push_back((uint8_t)(bits >> 8 * byte));
  }

  /* "name", "name+8", "generic(name)+8", or "0xFF00(name)" with a mask before it (one byte of an address). */
  void symbol(Variable &into, Token token) {
    bool is_generic = token.is("generic");
    if (is_generic) {
      lexer_.expect("(");
      token = lexer_.take();
      lexer_.expect(")");
    }
    uint64_t add = 0;
    if (lexer_.accept("+"))
      add = lexer_.take().bits;
    else if (lexer_.accept("-"))
      add = 0 - lexer_.take().bits;
    into.fixes.push_back({into.init.size(), size_of(into.type), add, token.text_, is_generic});
  }

  static uint64_t value_as(const Token &token, Type type) {
    if (token.literal == Type::f64 && type == Type::f32) {
      double wide;
      memcpy(&wide, &token.bits, sizeof wide);
      float narrow = (float)wide;
      uint32_t bits;
      memcpy(&bits, &narrow, sizeof bits);
      return bits;
    }
    return token.bits;
  }

  std::vector<Variable> parameters() {
    std::vector<Variable> made;
    if (!lexer_.accept("("))
      return made;
    while (!lexer_.accept(")")) {
      Variable one;
      one.space = Space::param;
      std::vector<std::string> words = split(lexer_.take().text_);
      uint64_t count = 1;
      for (;;) {
        for (const std::string &word : words)
          if (word == "align") {
            uint64_t align = lexer_.take().bits;
            if (one.type == Type::none) /* behind .ptr it is that of the memory */
              one.align = align;
          } else if (one.type == Type::none && type_of(word) != Type::none)
            one.type = type_of(word);
        if (lexer_.peek().kind != Token::word || lexer_.peek().text_[0] != '.')
          break;
        words = split(lexer_.take().text_);
      }
      one.name = lexer_.peek().kind == Token::word ? lexer_.take().text_ : "_";
      if (lexer_.accept("[")) {
        count = lexer_.peek().is("]") ? 0 : lexer_.take().bits;
        lexer_.expect("]");
      }
      one.size = size_of(one.type) * count;
      if (one.align < size_of(one.type))
        one.align = size_of(one.type);
      made.push_back(one);
      lexer_.accept(",");
    }
    return made;
  }

  static void place(Function &function, Variable &variable, uint64_t &used) {
    (void)function;
    used = (used + variable.align - 1) / variable.align * variable.align;
    variable.address = used;
    used += variable.size;
  }

  void function(bool is_entry, bool is_weak, bool is_visible) {
    auto made = std::make_unique<Function>();
    made->is_entry = is_entry, made->is_weak = is_weak, made->is_visible = is_visible || is_entry;
    if (!is_entry)
      made->results = parameters();
    made->name = lexer_.take().text_;
    made->params = parameters();
    /* The parameters of a kernel are laid out alone, as the launch gives them. */
    for (Variable &variable : made->params)
      place(*made, variable, made->param_bytes);
    for (Variable &variable : made->results)
      place(*made, variable, made->param_bytes);
    made->module = &module();
    tuning(*made);
    auto &slot = module().functions[made->name];
    if (lexer_.accept("{")) {
      made->is_defined = true;
      body(*made);
    } else {
      lexer_.expect(";");
    }
    if (!slot || !slot->is_defined)
      slot = std::move(made);
  }

  void tuning(Function &function) {
    while (lexer_.peek().kind == Token::word && lexer_.peek().text_[0] == '.') {
      std::string word = lexer_.take().text_;
      uint32_t numbers[3] = {1, 1, 1};
      size_t count = 0;
      while (lexer_.peek().kind == Token::number || lexer_.peek().kind == Token::text) {
        Token token = lexer_.take();
        if (count < 3)
          numbers[count++] = (uint32_t)token.bits;
        lexer_.accept(",");
      }
      if (word == ".maxntid")
        function.max_threads = numbers[0] * numbers[1] * numbers[2];
      else if (word == ".reqntid")
        memcpy(function.required_threads, numbers, sizeof numbers);
      else if (word == ".reqnctapercluster")
        memcpy(function.cluster, numbers, sizeof numbers);
      if (word == ".pragma")
        lexer_.expect(";");
    }
  }

  void body(Function &function) {
    function.parents.assign(1, 0);
    scope_ = 0;
    for (int depth = 1; depth;) {
      const Token &token = lexer_.peek();
      if (token.kind == Token::end)
        stop("PTX: function %s does not end", function.name.c_str());
      if (lexer_.accept("{")) {
        function.parents.push_back(scope_);
        scope_ = (uint32_t)function.parents.size() - 1;
        ++depth;
      } else if (lexer_.accept("}")) {
        scope_ = function.parents[scope_];
        --depth;
      }
      else if (token.kind == Token::word && token.text_[0] == '.')
        body_directive(function);
      else if (!lexer_.accept(";"))
        statement(function);
    }
  }

  void body_directive(Function &function) {
    Token token = lexer_.take();
    std::vector<std::string> parts = split(token.text_);
    if (parts[0] == "reg") {
      registers(function, parts);
    } else if (parts[0] == "loc") {
      while (lexer_.peek().kind != Token::end && lexer_.peek().line == token.line)
        lexer_.take();
    } else if (parts[0] == "pragma") {
      while (!lexer_.accept(";"))
        lexer_.take();
    } else {
      Variable pattern;
      pattern.space = space_of(parts[0]);
      for (Variable &made : variables(pattern, parts)) {
        if (made.space == Space::local) {
          place(function, made, function.local_bytes);
          function.locals[scoped(made.name, scope_)] = made;
        } else if (made.space == Space::param) {
          place(function, made, function.param_bytes);
          function.locals[scoped(made.name, scope_)] = made;
        } else { /* static variables of a function */
          module().variables[made.name] = std::make_unique<Variable>(made);
        }
      }
    }
  }

  void registers(Function &function, std::vector<std::string> parts) {
    while (lexer_.peek().kind == Token::word && lexer_.peek().text_[0] == '.')
      for (const std::string &part : split(lexer_.take().text_))
        parts.push_back(part);
    Type type = Type::none;
    for (const std::string &part : parts)
      if (type_of(part) != Type::none)
        type = type_of(part);
    int32_t slots = type == Type::b128 ? 2 : 1;
    auto add = [&](const std::string &name) {
      function.registers[scoped(name, scope_)] = {function.register_count, type};
      function.register_count += slots;
    };
    do {
      std::string name = lexer_.take().text_;
      if (lexer_.accept("<")) {
        uint64_t count = lexer_.take().bits;
        lexer_.expect(">");
        for (uint64_t number = 0; number < count; ++number)
          add(name + std::to_string(number));
      } else {
        add(name);
      }
    } while (lexer_.accept(","));
    lexer_.expect(";");
  }

  void statement(Function &function) {
    RawInst inst;
    inst.line = lexer_.peek().line;
    inst.scope = scope_;
    if (lexer_.accept("@")) {
      inst.is_negated = lexer_.accept("!");
      inst.predicate = lexer_.take().text_;
    }
    std::string word = lexer_.take().text_;
    if (inst.predicate.empty() && lexer_.accept(":")) {
      label(function, word);
      return;
    }
    std::vector<std::string> parts = split(word);
    inst.opcode = parts[0];
    inst.modifiers.assign(parts.begin() + 1, parts.end());
    while (!lexer_.accept(";")) {
      inst.operands.push_back(operand());
      if (!lexer_.accept(",") && !lexer_.peek().is(";"))
        stop("PTX line %d: ';' expected, not '%s'", lexer_.peek().line, lexer_.peek().text_.c_str());
    }
    function.raw.push_back(std::move(inst));
  }

  void label(Function &function, const std::string &name) {
    const std::string next = lexer_.peek().text_;
    if (next == ".branchtargets" || next == ".calltargets") {
      lexer_.take();
      while (!lexer_.accept(";")) {
        function.targets[name].push_back(lexer_.take().text_);
        lexer_.accept(",");
      }
    } else if (next == ".callprototype") {
      while (!lexer_.accept(";"))
        lexer_.take();
    } else {
      function.labels[scoped(name, scope_)] = (int32_t)function.raw.size();
    }
  }

  void list(RawOperand &into, const char *closing) {
    while (!lexer_.accept(closing)) {
      into.parts.push_back(operand());
      lexer_.accept(",");
    }
  }

  RawOperand operand() {
    RawOperand made;
    if (lexer_.accept("{") ) {
      made.kind = RawOperand::list;
      list(made, "}");
      return made;
    }
    if (lexer_.accept("(")) {
      made.kind = RawOperand::list;
      list(made, ")");
      return made;
    }
    if (lexer_.accept("[")) {
      made.kind = RawOperand::address;
      list(made, "]");
      return made;
    }
    made.is_negated = lexer_.accept("!");
    bool is_minus = lexer_.accept("-");
    Token token = lexer_.take();
    if (token.kind == Token::number) {
      made.kind = RawOperand::number;
      made.bits = is_minus && token.literal == Type::none ? 0 - token.bits : token.bits;
      made.literal = token.literal;
      if (is_minus && token.literal != Type::none)
        made.bits ^= token.literal == Type::f32 ? 1ull << 31 : 1ull << 63;
      return made;
    }
    if (token.kind != Token::word)
      stop("PTX line %d: an operand expected, not '%s'", token.line, token.text_.c_str());
    made.text = token.text_;
    for (;;)
      if (lexer_.accept("+")) {
        bool minus = lexer_.accept("-");
        uint64_t bits = lexer_.take().bits;
        made.bits += minus ? 0 - bits : bits;
      } else if (lexer_.accept("-"))
        made.bits -= lexer_.take().bits;
      else
        break;
    if (lexer_.accept("|")) {
      RawOperand both;
      both.kind = RawOperand::pair;
      both.parts.push_back(made);
      both.parts.push_back(operand());
      return both;
    }
    return made;
  }

  Lexer lexer_;
  Image &image_;
  uint32_t scope_ = 0;
};

struct TypeName {
  const char *name;
  Type type;
  unsigned size;
};
const TypeName kTypes[] = {
    {"b8", Type::b8, 1}, {"b16", Type::b16, 2}, {"b32", Type::b32, 4}, {"b64", Type::b64, 8},
    {"b128", Type::b128, 16}, {"u8", Type::u8, 1}, {"u16", Type::u16, 2}, {"u32", Type::u32, 4},
    {"u64", Type::u64, 8}, {"s8", Type::s8, 1}, {"s16", Type::s16, 2}, {"s32", Type::s32, 4},
    {"s64", Type::s64, 8}, {"f16", Type::f16, 2}, {"f16x2", Type::f16x2, 4}, {"bf16", Type::bf16, 2},
    {"bf16x2", Type::bf16x2, 4}, {"f32", Type::f32, 4}, {"f64", Type::f64, 8}, {"pred", Type::pred, 1},
    {"tf32", Type::tf32, 4},
};

} // namespace

unsigned size_of(Type type) {
  for (const TypeName &known : kTypes)
    if (known.type == type)
      return known.size;
  return 0;
}
bool is_signed(Type type) { return type >= Type::s8 && type <= Type::s64; }
bool is_float(Type type) { return type >= Type::f16 && type <= Type::f64; }
Type type_of(const std::string &name) {
  for (const TypeName &known : kTypes)
    if (name == known.name)
      return known.type;
  return Type::none;
}

std::string scoped(const std::string &name, uint32_t scope) {
  return scope ? name + "#" + std::to_string(scope) : name;
}

bool RawInst::has(const char *modifier) const {
  for (const std::string &one : modifiers)
    if (one == modifier)
      return true;
  return false;
}

Function *Image::find_function(const Module *from, const std::string &name) {
  Function *found = nullptr;
  auto own = from ? from->functions.find(name) : decltype(from->functions.end()){};
  if (from && own != from->functions.end()) {
    found = own->second.get();
    if (found->is_defined)
      return found;
  }
  for (auto &module : modules) {
    auto other = module->functions.find(name);
    if (other != module->functions.end() && other->second->is_defined && other->second->is_visible &&
        (!found || !found->is_defined || found->is_weak))
      found = other->second.get();
  }
  return found;
}

Variable *Image::find_variable(const Module *from, const std::string &name) {
  auto own = from->variables.find(name);
  if (own == from->variables.end())
    return nullptr;
  Variable *found = own->second.get();
  if (!found->is_extern && !found->is_weak)
    return found;
  for (auto &module : modules) {
    auto other = module->variables.find(name);
    if (other != module->variables.end() && !other->second->is_extern && other->second->is_visible)
      return other->second.get();
  }
  return found;
}

std::unique_ptr<Image> parse_image(const std::string &text) {
  auto image = std::make_unique<Image>();
  Parser(text, *image).parse();
  return image;
}

} // namespace ptx
