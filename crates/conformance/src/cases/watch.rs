use super::cases;
cases! { "watch": }
